-- top_sessions: who holds the storage, who earns the hits, and who makes the p99. Sessions share the cache
--     of their pool: hits are shares of the pool's hits, not what a session would get alone
-- reads: requests, reuse_runs
-- parameters: $capacity_blocks (capacity of each pool: blocks, or text such as 2TiB, p99 or unlimited,
--     default p99), $order_by (held, hits or p99, default held), $rows (how many sessions, default 20),
--     $moments (how many evenly spaced moments the cache is looked at, default 20)
-- returns: session_id VARCHAR (null: requests without one), requests BIGINT, input_tokens BIGINT,
--     held_blocks DOUBLE (blocks in the cache that the session used last, mean over the moments; null
--     under engine rules),
--     held_bytes DOUBLE (null without bytes per token), share_of_held DOUBLE, hit_blocks_in_pool BIGINT,
--     hit_tokens_in_pool BIGINT, share_of_all_hits DOUBLE (of hit tokens), p99_requests BIGINT (requests that
--     required the p99 over all requests or more), max_required_blocks BIGINT
-- example:
--     SELECT session_id, held_blocks, hit_blocks_in_pool, p99_requests FROM top_sessions(20)
--     session_id  held_blocks  hit_blocks_in_pool  p99_requests
--            ann      5.16667                  14             0
--            bob      4.58333                  12             1
--            eve      4.16667                  11             0
--            dan            2                   8             0
WITH limits AS (
    SELECT
        capacity_blocks($capacity_blocks) AS capacity,
        greatest(1, capacity_blocks('p99')) AS p99_blocks
),

moments AS (
    SELECT DISTINCT warm_up_requests
        + CAST(ceil((requests - warm_up_requests) * step / CAST($moments AS BIGINT)) AS BIGINT) - 1 AS moment
    FROM run, (SELECT unnest(range(1, CAST($moments AS BIGINT) + 1)) AS step)
    WHERE requests > warm_up_requests AND is_plain()
),

-- A request's blocks that nobody has used since: all of them at first, fewer after each reuse run.
survivors AS (
    SELECT
        requests.request_id,
        pool,
        session_id,
        requests.blocks - taken AS blocks,
        since,
        lead(since) OVER (PARTITION BY requests.request_id ORDER BY since) AS until
    FROM (
        SELECT request_id, request_id AS since, 0 AS taken FROM requests
        UNION ALL
        SELECT source_request_id, request_id, max(first_block + blocks)
        FROM reuse_runs
        GROUP BY source_request_id, request_id
    ) AS changes
    JOIN requests ON requests.request_id = changes.request_id
),

-- The LRU stack of each pool at each moment, newest request first.
stacks AS (
    SELECT
        session_id,
        blocks,
        sum(blocks) OVER (PARTITION BY moment, pool ORDER BY request_id DESC ROWS UNBOUNDED PRECEDING)
            - blocks AS depth
    FROM moments
    JOIN survivors ON since <= moment AND moment < coalesce(until, moment + 1)
    WHERE blocks > 0
),

held AS (
    SELECT session_id, sum(hit_blocks(depth, blocks, capacity)) AS block_moments
    FROM stacks, limits
    GROUP BY session_id
),

served AS (
    SELECT
        requests.session_id,
        count(hits.request_id) AS requests,
        coalesce(sum(hits.input_length), 0) AS input_tokens,
        coalesce(sum(hit_blocks), 0) AS hit_blocks,
        coalesce(sum(hit_tokens), 0) AS hit_tokens,
        count(*) FILTER (WHERE hits.required_blocks >= p99_blocks) AS p99_requests,
        coalesce(max(hits.required_blocks), 0) AS max_required_blocks
    FROM limits, requests
    LEFT JOIN request_hits($capacity_blocks) AS hits ON requests.request_id = hits.request_id
    GROUP BY requests.session_id
),

joined AS (
    SELECT
        served.*,
        coalesce(block_moments, 0) / nullif(n_moments, 0) AS held_blocks,
        coalesce(block_moments, 0) / nullif(sum(block_moments) OVER (), 0) AS share_of_held,
        hit_tokens / nullif(sum(hit_tokens) OVER (), 0) AS share_of_all_hits,
        CASE CAST($order_by AS VARCHAR)
            WHEN 'held' THEN held_blocks
            WHEN 'hits' THEN hit_tokens
            WHEN 'p99' THEN p99_requests
            ELSE error('order_by is ''' || $order_by || ''', expected held, hits or p99')
        END AS standing
    FROM served
    CROSS JOIN (SELECT count(*) AS n_moments FROM moments)
    LEFT JOIN held ON served.session_id IS NOT DISTINCT FROM held.session_id
)

SELECT
    session_id,
    requests,
    CAST(input_tokens AS BIGINT) AS input_tokens,
    held_blocks,
    held_blocks * (SELECT block_bytes FROM run) AS held_bytes,
    share_of_held,
    CAST(hit_blocks AS BIGINT) AS hit_blocks_in_pool,
    CAST(hit_tokens AS BIGINT) AS hit_tokens_in_pool,
    share_of_all_hits,
    p99_requests,
    max_required_blocks
FROM joined
QUALIFY row_number() OVER (ORDER BY standing DESC, hit_tokens DESC, session_id) <= CAST($rows AS BIGINT)
ORDER BY standing DESC, hit_tokens DESC, session_id
