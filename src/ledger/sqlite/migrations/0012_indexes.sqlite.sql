-- The leases that a policy ever had, and the orders of a day, are found by an index.
CREATE INDEX lease_policy ON lease (policy_id, first_seq);

CREATE INDEX sale_order_day ON sale_order (day);
