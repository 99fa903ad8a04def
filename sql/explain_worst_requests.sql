-- explain_worst_requests: requests with most unexplained tokens, then with most that a cache had once held
-- reads: explained, requests
-- parameters: $rows (how many, default 10)
-- returns: request_id BIGINT, timestamp TIMESTAMP, instance VARCHAR, session_id VARCHAR, model VARCHAR,
--     input_tokens BIGINT, observed_tokens BIGINT, expected_tokens BIGINT, unexplained_tokens BIGINT,
--     cause VARCHAR (why most of them missed), cause_tokens BIGINT
-- example:
--     SELECT request_id, observed_tokens, expected_tokens, cause, cause_tokens FROM explain_worst_requests(3)
--     request_id  observed_tokens  expected_tokens        cause  cause_tokens
--              9                0              128  unexplained           128
--              8               32               64  unexplained            32
--              2               80               96  unexplained            16
WITH causes AS (
    SELECT
        request_id,
        [
            {'tokens': unexplained_tokens, 'name': 'unexplained'},
            {'tokens': other_instance_tokens, 'name': 'other_instance'},
            {'tokens': capacity_and_ttl_tokens, 'name': 'capacity_and_ttl'},
            {'tokens': capacity_tokens, 'name': 'capacity'},
            {'tokens': ttl_tokens, 'name': 'ttl'},
            {'tokens': restart_tokens, 'name': 'restart'},
            {'tokens': source_running_tokens, 'name': 'source_running'},
            {'tokens': below_minimum_tokens, 'name': 'below_minimum'}
        ] AS listed,
        list_sum([cause.tokens FOR cause IN listed]) AS missed_tokens,
        list_reduce(listed, lambda one, other : CASE WHEN other.tokens > one.tokens THEN other ELSE one END)
            AS cause
    FROM explained
)

SELECT
    request_id,
    timestamp,
    instance,
    session_id,
    model,
    input_tokens,
    observed_tokens,
    expected_tokens,
    unexplained_tokens,
    cause.name AS cause,
    cause.tokens AS cause_tokens
FROM explained
INNER JOIN causes USING (request_id)
INNER JOIN requests USING (request_id)
WHERE missed_tokens > 0
ORDER BY unexplained_tokens DESC, missed_tokens DESC, request_id
LIMIT CAST($rows AS BIGINT)
