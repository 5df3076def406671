"""A small exchange: what can be built on aeron_async, one process a part.

| part | module | shows |
|---|---|---|
| archive | `python -m aeron_async archive serve` | recordings that outlive every other part |
| engine | `engine` | a durable log of commands, calls, and a book that a replay makes again |
| market data | `market` | a second replica of the book, multicast, snapshots for late readers |
| gateway | `gateway` | FastAPI, HTTP and websockets; a slow browser holds up no one |
| traders | `traders` | seeded clients, and a reader of the newest prices only |
| bars | `bars` | trades as a table of Spark |

`book` and `matching` are the rules, without a clock, a socket or a task; `messages` are the bytes;
`feed` keeps a book by market data; `wiring` says who is where. `python -m examples.exchange` starts
all of them; see `docs/explanation/exchange.md`.
"""
