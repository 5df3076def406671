"""How the page looks, in light and in dark."""

from __future__ import annotations

from typing import Final

__all__ = ["STYLE"]

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #667085; --line: #d9dee7;
  --paper: #ffffff; --card: #f6f8fb; --c0: #2563eb; --c1: #d9480f; --c2: #2b8a3e; --c3: #9c36b5;
  --c4: #0b7285; --c5: #c2255c; --c6: #867400; --c7: #5f3dc4; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf2; --soft: #9aa5b8; --line: #333c4d;
  --paper: #12161d; --card: #1a202a; --c0: #6ea8fe; --c1: #ff922b; --c2: #69db7c; --c3: #da77f2;
  --c4: #3bc9db; --c5: #f783ac; --c6: #ffe066; --c7: #b197fc; } }
body { margin: 0 auto; max-width: 940px; padding: 24px 20px 60px; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0; } h2 { font-size: 18px; margin: 36px 0 8px; }
p { margin: 4px 0; color: var(--soft); }
.cards { display: flex; flex-wrap: wrap; gap: 12px; margin: 20px 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 10px 16px; min-width: 110px; }
.card b { display: block; font-size: 20px; } .card span { color: var(--soft); font-size: 13px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { padding: 5px 10px 5px 0; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 600; }
td.text, th.text { text-align: left; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
svg .side { text-anchor: end; } svg .below { text-anchor: middle; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
svg .bar { fill: var(--soft); opacity: .5; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 13px; color: var(--soft); }
.legend i { display: inline-block; width: 14px; height: 3px; margin-right: 6px;
  vertical-align: middle; }
""" + "".join(
    f"svg .line.c{each} {{ stroke: var(--c{each}); }} svg .dot.c{each} {{ fill: var(--c{each}); }}"
    f" .legend .c{each} {{ background: var(--c{each}); }}\n"
    for each in range(8)
)
