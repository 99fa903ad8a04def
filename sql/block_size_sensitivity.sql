-- block_size_sensitivity: what larger blocks would do, from the same run. A block of factor blocks is known
--     by its last one, so that its LRU depth follows from the reuse runs; an incomplete last one is no block
--     (as in replay --coarsen FACTOR --partial-block drop). Not under engine rules or --max-capacity
-- reads: requests, reuse_runs
-- parameters: $factors (how many blocks become one, default [1, 2, 4, 8]), $capacity_blocks (capacity of each
--     pool: blocks of the run, or text such as 2TiB, p99 or unlimited, default p99)
-- returns: factor BIGINT, block_size BIGINT (tokens), capacity_blocks BIGINT (of this size), blocks BIGINT,
--     distinct_blocks BIGINT (warm-up included), ceiling_blocks BIGINT, ceiling_tokens BIGINT,
--     hit_blocks BIGINT, hit_tokens BIGINT, ceiling_token_hit_rate DOUBLE, token_hit_rate DOUBLE
-- example:
--     SELECT factor, block_size, pct(token_hit_rate) AS percent FROM block_size_sensitivity
--     factor  block_size  percent
--          1          16    64.85
--          2          32    55.58
--          4          64    42.35
--          8         128    21.17
WITH factors AS (
    SELECT factor, capacity_blocks($capacity_blocks) // factor AS capacity
    FROM (SELECT DISTINCT CAST(unnest(items($factors)) AS BIGINT) AS factor)
    WHERE has_all_runs()
),

-- Requests in an order that keeps each pool together, so that no sum below needs to tell pools apart: what
-- earlier pools add cancels out, and later ones add nothing.
ordered AS (
    SELECT
        request_id,
        blocks,
        row_number() OVER (ORDER BY pool, request_id) - 1 AS place
    FROM requests
),

-- Reuse runs, whatever their weights, in larger blocks; the run of a source takes its first blocks left.
runs AS (
    SELECT
        row_number() OVER () AS run_id,
        factor,
        capacity,
        fine.request_id,
        request.place,
        source.place AS source_place,
        first_block // factor AS first_block,
        end_block // factor - first_block // factor AS blocks
    FROM factors
    CROSS JOIN (
        SELECT
            request_id,
            source_request_id,
            min(first_block) AS first_block,
            max(first_block + blocks) AS end_block
        FROM reuse_runs
        GROUP BY request_id, source_request_id
    ) AS fine
    JOIN ordered AS request ON fine.request_id = request.request_id
    JOIN ordered AS source ON fine.source_request_id = source.request_id
    WHERE end_block // factor > first_block // factor
),

-- Blocks that requests up to each one touched, and blocks that runs before each request took.
touched AS (
    SELECT
        factor,
        place,
        blocks // factor AS blocks,
        sum(blocks // factor) OVER (PARTITION BY factor ORDER BY place) AS up_to
    FROM factors, ordered
),

taken AS (
    SELECT
        factor,
        place,
        sum(sum(blocks)) OVER (PARTITION BY factor ORDER BY place) - sum(blocks) AS before
    FROM runs
    GROUP BY factor, place
),

-- Of those, the blocks taken from sources up to a run's own. Places are the leaves of a binary tree, one for
-- each factor, whose nodes are numbered like a heap's; the leaves up to a source's are those of at most one
-- node per level, always an even one. At a node, time alone orders what was taken; a run looks before it takes.
levels AS (
    SELECT unnest(range(0, depth)) AS level, 1 << depth AS leaves
    FROM (SELECT CAST(ceil(log2(requests + 2)) AS INTEGER) AS depth FROM run)
),

events AS (
    SELECT
        2 * leaves * factor + ((leaves + source_place) >> level) AS node,
        2 * place + 1 AS moment,
        NULL AS run_id,
        blocks
    FROM runs, levels
    WHERE node & 1 = 0
    UNION ALL
    SELECT 2 * leaves * factor + ((leaves + source_place + 1) >> level) - 1 AS node, 2 * place, run_id, 0
    FROM runs, levels
    WHERE node & 1 = 0
),

taken_from_older AS (
    SELECT run_id, sum(before) AS before
    FROM (
        SELECT run_id, sum(blocks) OVER (PARTITION BY node ORDER BY moment ROWS UNBOUNDED PRECEDING) AS before
        FROM events
    )
    WHERE run_id IS NOT NULL
    GROUP BY run_id
),

-- Depth: what requests between the source and this one touched, less what runs have taken from them.
deep AS (
    SELECT
        runs.*,
        (request.up_to - request.blocks) - source.up_to - (taken.before - older.before) AS depth,
        source.blocks - runs.first_block AS left_of_source
    FROM runs
    JOIN touched AS request ON request.factor = runs.factor AND request.place = runs.place
    JOIN touched AS source ON source.factor = runs.factor AND source.place = runs.source_place
    JOIN taken ON taken.factor = runs.factor AND taken.place = runs.place
    JOIN taken_from_older AS older ON older.run_id = runs.run_id
),

served AS (
    SELECT
        factor,
        request_id,
        sum(blocks) AS ceiling_blocks,
        sum(hits(depth, depth + left_of_source - 1, blocks, capacity)) AS hit_blocks
    FROM deep
    GROUP BY factor, request_id
),

tokens AS (
    SELECT
        factor,
        sum(tokens_per_block * hit_blocks(first_block, blocks, ceiling_blocks * factor)) AS ceiling_tokens,
        sum(tokens_per_block * hit_blocks(first_block, blocks, served.hit_blocks * factor)) AS hit_tokens
    FROM served
    JOIN measured_runs USING (request_id)
    GROUP BY factor
),

counted AS (
    SELECT
        factors.factor,
        capacity,
        sum(requests.blocks // factors.factor) FILTER (WHERE measured) AS blocks,
        sum(requests.blocks // factors.factor - coalesce(served.ceiling_blocks, 0)) AS distinct_blocks,
        sum(served.ceiling_blocks) FILTER (WHERE measured) AS ceiling_blocks,
        sum(served.hit_blocks) FILTER (WHERE measured) AS hit_blocks,
        sum(input_length) FILTER (WHERE measured) AS input_tokens
    FROM factors
    CROSS JOIN requests
    LEFT JOIN served ON served.factor = factors.factor AND served.request_id = requests.request_id
    GROUP BY factors.factor, capacity
)

SELECT
    counted.factor,
    counted.factor * (SELECT run.block_size FROM run) AS block_size,
    capacity AS capacity_blocks,
    CAST(coalesce(blocks, 0) AS BIGINT) AS blocks,
    CAST(distinct_blocks AS BIGINT) AS distinct_blocks,
    CAST(coalesce(ceiling_blocks, 0) AS BIGINT) AS ceiling_blocks,
    CAST(coalesce(ceiling_tokens, 0) AS BIGINT) AS ceiling_tokens,
    CAST(coalesce(hit_blocks, 0) AS BIGINT) AS hit_blocks,
    CAST(coalesce(hit_tokens, 0) AS BIGINT) AS hit_tokens,
    coalesce(ceiling_tokens, 0) / nullif(input_tokens, 0) AS ceiling_token_hit_rate,
    coalesce(hit_tokens, 0) / nullif(input_tokens, 0) AS token_hit_rate
FROM counted
LEFT JOIN tokens ON counted.factor = tokens.factor
ORDER BY counted.factor
