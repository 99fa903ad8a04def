-- totals: what the measured requests asked for and what unlimited storage would have served
-- reads: requests
-- parameters: none
-- returns: pool VARCHAR (null: all together), requests BIGINT, blocks BIGINT, ceiling_blocks BIGINT,
--     input_tokens BIGINT, ceiling_tokens BIGINT, mean_input_tokens DOUBLE
-- example:
--     FROM totals
--     pool  requests  blocks  ceiling_blocks  input_tokens  ceiling_tokens  mean_input_tokens
--                 12      76              49          1209             784             100.75
SELECT * FROM pool_totals ORDER BY pool NULLS FIRST
