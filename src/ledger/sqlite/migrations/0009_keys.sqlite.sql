-- The keys of one claim, to count them and to tell the gate of them.
CREATE INDEX claim_key_seq ON claim_key (policy_id, seq);
