"""Schema of the user's price store, one SQLite file, and its migrations.

A *series* is one part of a source; a *batch* is one snapshot of it. A *price* row is an interval of snapshots with an offer at
one price: `batch` began it and `end_batch` ended it or had another price. An interval without `last` is open: the newest snapshot
of its series has it, so that an unchanged price takes no space. Any snapshot can be restored from the intervals that had begun
and not ended. Days are proleptic ordinals.
"""

from __future__ import annotations

APPLICATION = 0x57475055  # The letters WGPU, which mark a SQLite file as a price store.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE series(id INTEGER PRIMARY KEY, source TEXT NOT NULL, scope TEXT NOT NULL, UNIQUE(source, scope));
    CREATE TABLE batch(
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        series INTEGER NOT NULL REFERENCES series(id),
        seen INTEGER NOT NULL,      -- day the prices were true
        recorded INTEGER NOT NULL,  -- day they entered this store
        content INTEGER,            -- day the source's content last changed, if known
        digest TEXT,
        rows INTEGER NOT NULL, aside INTEGER NOT NULL, prices INTEGER NOT NULL, kept INTEGER NOT NULL,
        offers INTEGER NOT NULL, unknown INTEGER NOT NULL, reasons TEXT NOT NULL,
        changes INTEGER NOT NULL DEFAULT 0  -- offers that are new, ended or at another price
    );
    CREATE INDEX batch_series ON batch(series, id);
    CREATE TABLE offer(
        id INTEGER PRIMARY KEY,
        gpu TEXT NOT NULL, provider TEXT NOT NULL, instance TEXT NOT NULL, region TEXT NOT NULL, gpus REAL NOT NULL,
        term TEXT NOT NULL, payment TEXT NOT NULL, includes TEXT NOT NULL, currency TEXT NOT NULL,
        UNIQUE(gpu, provider, instance, region, gpus, term, payment, includes, currency)
    );
    CREATE TABLE price(
        offer INTEGER NOT NULL, series INTEGER NOT NULL, first INTEGER NOT NULL, batch INTEGER NOT NULL,
        last INTEGER, ended INTEGER, end_batch INTEGER, amount TEXT NOT NULL, upfront TEXT NOT NULL,
        PRIMARY KEY(offer, series, first, batch)
    ) WITHOUT ROWID;
    CREATE INDEX price_open ON price(series, offer) WHERE last IS NULL;
    CREATE TABLE held(offer INTEGER NOT NULL, series INTEGER NOT NULL, PRIMARY KEY(offer, series)) WITHOUT ROWID;
    -- changes of the stated availability of an offer
    CREATE TABLE availability(
        offer INTEGER NOT NULL, series INTEGER NOT NULL, batch INTEGER NOT NULL, words TEXT NOT NULL,
        PRIMARY KEY(offer, series, batch)
    ) WITHOUT ROWID;
    CREATE TABLE quarantine(
        id INTEGER PRIMARY KEY, batch INTEGER NOT NULL REFERENCES batch(id), reason TEXT NOT NULL, detail TEXT NOT NULL,
        provider TEXT, instance TEXT, region TEXT, accelerator TEXT, term TEXT, payment TEXT, price TEXT, currency TEXT
    );
    CREATE INDEX quarantine_batch ON quarantine(batch);
    CREATE TABLE validator(url TEXT PRIMARY KEY, etag TEXT, modified TEXT, reader TEXT NOT NULL);
    CREATE TABLE look(name TEXT PRIMARY KEY, batch INTEGER NOT NULL);
    """,
)
