-- explain_waterfall: all prompt tokens whose hit the log tells, by what became of them; they add up exactly
-- reads: explained
-- parameters: none
-- returns: cause VARCHAR (expected_hit, more_than_expected, then why tokens missed, in the order in which
--     causes are taken, and unexplained), tokens BIGINT, share_of_input_tokens DOUBLE
-- example:
--     SELECT cause, tokens FROM explain_waterfall WHERE tokens > 0
--                  cause  tokens
--           expected_hit     544
--     more_than_expected      16
--             never_seen     400
--          partial_block      41
--            unexplained     208
WITH steps AS (
    SELECT
        sum(input_tokens) AS input_tokens,
        unnest([
            {'name': 'expected_hit', 'tokens': sum(observed_tokens - more_tokens)},
            {'name': 'more_than_expected', 'tokens': sum(more_tokens)},
            {'name': 'never_seen', 'tokens': sum(never_seen_tokens)},
            {'name': 'partial_block', 'tokens': sum(partial_block_tokens)},
            {'name': 'last_token', 'tokens': sum(last_token_tokens)},
            {'name': 'other_instance', 'tokens': sum(other_instance_tokens)},
            {'name': 'capacity_and_ttl', 'tokens': sum(capacity_and_ttl_tokens)},
            {'name': 'capacity', 'tokens': sum(capacity_tokens)},
            {'name': 'ttl', 'tokens': sum(ttl_tokens)},
            {'name': 'restart', 'tokens': sum(restart_tokens)},
            {'name': 'source_running', 'tokens': sum(source_running_tokens)},
            {'name': 'below_minimum', 'tokens': sum(below_minimum_tokens)},
            {'name': 'unexplained', 'tokens': sum(unexplained_tokens)}
        ]) AS step
    FROM explained
)

SELECT
    step.name AS cause,
    CAST(coalesce(step.tokens, 0) AS BIGINT) AS tokens,
    coalesce(step.tokens, 0) / nullif(input_tokens, 0) AS share_of_input_tokens
FROM steps
