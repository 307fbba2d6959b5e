-- Two users for a ledger in MySQL or MariaDB: dibs_owner migrates, dibs_serve serves.
-- Once, by an administrator:
--     mysql < mysql_roles.sql

-- A database of its own: the shop may have tables with these names.
CREATE DATABASE dibs CHARACTER SET utf8mb4;

CREATE USER dibs_owner; -- ALTER USER dibs_owner IDENTIFIED BY '…', or what your server asks
CREATE USER dibs_serve;

GRANT CREATE, ALTER, INDEX, REFERENCES, DROP, SELECT, INSERT, UPDATE, DELETE ON dibs.*
    TO dibs_owner WITH GRANT OPTION;
