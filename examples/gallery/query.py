"""DuckDB: groups, joins and ranks three million rows of a table in memory."""

import duckdb

base = duckdb.connect(config={"threads": 2})
base.execute("create table visits as select i, i * 7919 % 1000003 as person, hash(i)::varchar as page from range(3000000) r(i)")
print("persons:", base.execute("select count(*) from (select person, max(page) from visits group by person)").fetchone()[0])
print("returned:", base.execute("select count(*) from visits join (select person, min(i) first from visits group by person) using (person) where i > first").fetchone()[0])
print("largest rank:", base.execute("select max(n) from (select row_number() over (partition by person % 100 order by page) n from visits)").fetchone()[0])
