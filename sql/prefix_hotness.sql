-- prefix_hotness: the shared prefixes that earn most, with unlimited storage. Prompts are cut where paths
--     part, so that each segment's blocks are shared by the same requests, and segments never overlap: their
--     reused blocks add up to the ceiling. Not under engine rules or --max-capacity
-- reads: requests, reuse_runs
-- parameters: $rows (how many segments, default 20)
-- returns: pool VARCHAR, first_request_id BIGINT (the request that brought the segment), prefix_blocks BIGINT
--     (where the segment ends, from the start of the prompt), segment_blocks BIGINT, segment_bytes BIGINT
--     (null without bytes per token), reuses BIGINT (measured requests that found it), reused_blocks BIGINT
--     (segment_blocks * reuses), share_of_ceiling DOUBLE
-- example:
--     SELECT first_request_id, prefix_blocks, segment_blocks, reuses FROM prefix_hotness(rows := 4)
--     first_request_id  prefix_blocks  segment_blocks  reuses
--                    0              3               3       7
--                    3              3               3       3
--                    0              6               3       2
--                    1              5               2       2
WITH RECURSIVE known AS (
    -- How far the prefix of each request was known, and which request used its last block most recently.
    SELECT
        request_id,
        max(first_block + blocks) AS known_blocks,
        max_by(source_request_id, first_block) AS sharer
    FROM (SELECT 1 WHERE has_all_runs())
    CROSS JOIN reuse_runs
    GROUP BY request_id
),

-- Where 2 ** level steps from sharer to sharer lead, and the least known prefix on the way.
jumps AS (
    SELECT 0 AS level, request_id, sharer, known_blocks FROM known
    UNION ALL
    SELECT near.level + 1, near.request_id, far.sharer, least(near.known_blocks, far.known_blocks)
    FROM jumps AS near
    JOIN jumps AS far ON near.sharer = far.request_id
),

-- The request that brought the last known block: the first on the way to which it was not known.
climbs AS (
    SELECT request_id, known_blocks, sharer AS origin, (SELECT max(level) FROM jumps) AS level FROM known
    UNION ALL
    SELECT climbs.request_id, climbs.known_blocks, coalesce(jumps.sharer, origin), climbs.level - 1
    FROM climbs
    LEFT JOIN jumps
        ON jumps.level = climbs.level
        AND jumps.request_id = origin
        AND jumps.known_blocks >= climbs.known_blocks
    WHERE climbs.level >= 0
),

origins AS (
    SELECT request_id, known_blocks, origin FROM climbs WHERE level = -1
),

-- A node for every place where a known prefix ended: the first known_blocks blocks of origin.
nodes AS (
    SELECT origin, known_blocks, count(*) FILTER (WHERE measured) AS ended
    FROM origins
    JOIN requests ON origins.request_id = requests.request_id
    GROUP BY origin, known_blocks
),

-- The next shorter node on its path: of the same origin, or where the origin's own known prefix ended.
tree AS (
    SELECT
        nodes.origin,
        nodes.known_blocks,
        ended,
        coalesce(lag(nodes.known_blocks) OVER shorter, origins.known_blocks, 0) AS parent_blocks,
        CASE WHEN lag(nodes.known_blocks) OVER shorter IS NULL THEN origins.origin ELSE nodes.origin END
            AS parent_origin
    FROM nodes
    LEFT JOIN origins ON nodes.origin = origins.request_id
    WINDOW shorter AS (PARTITION BY nodes.origin ORDER BY nodes.known_blocks)
),

-- Requests that passed through a node, from those that ended there: after 2 ** level steps upwards.
passing AS (
    SELECT 0 AS level, origin, known_blocks, parent_origin, parent_blocks, ended AS reuses FROM tree
    UNION ALL
    SELECT
        below.level + 1,
        below.origin,
        below.known_blocks,
        above.parent_origin,
        above.parent_blocks,
        below.reuses + coalesce(arriving.reuses, 0)
    FROM passing AS below
    LEFT JOIN passing AS above
        ON below.parent_origin = above.origin AND below.parent_blocks = above.known_blocks
    LEFT JOIN (
        SELECT parent_origin, parent_blocks, sum(reuses) AS reuses FROM passing GROUP BY ALL
    ) AS arriving
        ON below.origin = arriving.parent_origin AND below.known_blocks = arriving.parent_blocks
    WHERE EXISTS (FROM passing WHERE parent_origin IS NOT NULL)
),

segments AS (
    SELECT
        requests.pool,
        tree.origin AS first_request_id,
        tree.known_blocks AS prefix_blocks,
        tree.known_blocks - tree.parent_blocks AS segment_blocks,
        CAST(reuses AS BIGINT) AS reuses,
        CAST((tree.known_blocks - tree.parent_blocks) * reuses AS BIGINT) AS reused_blocks
    FROM passing
    JOIN tree ON passing.origin = tree.origin AND passing.known_blocks = tree.known_blocks
    JOIN requests ON tree.origin = requests.request_id
    WHERE level = (SELECT max(level) FROM passing)
)

SELECT
    pool,
    first_request_id,
    prefix_blocks,
    segment_blocks,
    segment_blocks * (SELECT block_bytes FROM run) AS segment_bytes,
    reuses,
    reused_blocks,
    reused_blocks / nullif((SELECT ceiling_blocks FROM pool_totals WHERE pool IS NULL), 0) AS share_of_ceiling
FROM segments
WHERE reuses > 0
WINDOW leading_first AS (ORDER BY reused_blocks DESC, first_request_id, prefix_blocks)
QUALIFY row_number() OVER leading_first <= CAST($rows AS BIGINT)
ORDER BY reused_blocks DESC, first_request_id, prefix_blocks
