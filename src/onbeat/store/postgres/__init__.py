"""PostgreSQL as a store: any number of nodes on one database."""
