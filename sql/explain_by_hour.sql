-- explain_by_hour: tokens from cache as observed and as expected, window by window
-- reads: explained, requests
-- parameters: $window_seconds (length of a window, default 3600)
-- returns: window_start TIMESTAMP (null: requests without a timestamp), requests BIGINT, input_tokens BIGINT,
--     observed_tokens BIGINT, expected_tokens BIGINT, unexplained_tokens BIGINT, more_tokens BIGINT,
--     observed_rate DOUBLE, expected_rate DOUBLE
-- example:
--     SELECT window_start, requests, observed_tokens, expected_tokens FROM explain_by_hour
--            window_start  requests  observed_tokens  expected_tokens
--     2023-11-14 22:00:00         6              240              272
--     2023-11-14 23:00:00         3              208              224
--     2023-11-15 00:00:00         3              112              256
SELECT
    window_start(timestamp, $window_seconds) AS window_start,
    count(*) AS requests,
    CAST(sum(input_tokens) AS BIGINT) AS input_tokens,
    CAST(sum(observed_tokens) AS BIGINT) AS observed_tokens,
    CAST(sum(expected_tokens) AS BIGINT) AS expected_tokens,
    CAST(sum(unexplained_tokens) AS BIGINT) AS unexplained_tokens,
    CAST(sum(more_tokens) AS BIGINT) AS more_tokens,
    sum(observed_tokens) / nullif(sum(input_tokens), 0) AS observed_rate,
    sum(expected_tokens) / nullif(sum(input_tokens), 0) AS expected_rate
FROM explained
INNER JOIN requests USING (request_id)
GROUP BY ALL
ORDER BY window_start
