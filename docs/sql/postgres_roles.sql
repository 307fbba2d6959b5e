-- Two roles for a ledger in PostgreSQL: dibs_owner migrates, dibs_serve serves.
-- Once, by an administrator, in the database that is to hold the ledger:
--     psql -d shop -f postgres_roles.sql

CREATE ROLE dibs_owner LOGIN; -- \password dibs_owner, or a certificate, or what pg_hba.conf asks
CREATE ROLE dibs_serve LOGIN;

-- A schema of its own: the shop may have tables with these names.
CREATE SCHEMA dibs AUTHORIZATION dibs_owner;
ALTER ROLE dibs_owner SET search_path = dibs;
ALTER ROLE dibs_serve SET search_path = dibs;

GRANT USAGE ON SCHEMA dibs TO dibs_serve;
