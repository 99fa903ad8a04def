-- What every connection gets over the views requests, reuse_runs, curve and run: macros and one view.

-- Blocks of a run that hit at a capacity in blocks, by touch order.
CREATE MACRO hit_blocks(depth, blocks, capacity) AS least(blocks, greatest(0, capacity - depth));
CREATE MACRO hit_blocks_head_first(depth_head_first, blocks, capacity) AS
    CASE WHEN depth_head_first < capacity THEN blocks ELSE 0 END;

-- The same in the run's own touch order.
CREATE MACRO hits(depth, depth_head_first, blocks, capacity) AS
    CASE WHEN (SELECT tail_first FROM run) THEN hit_blocks(depth, blocks, capacity)
         ELSE hit_blocks_head_first(depth_head_first, blocks, capacity) END;

-- A count's share rounded up, exact for percentages of up to six decimals.
CREATE MACRO ceil_share(total, percent) AS
    CAST((CAST(total AS HUGEINT) * CAST(round(CAST(percent AS DOUBLE) * 1000000) AS HUGEINT) + 99999999)
         // 100000000 AS BIGINT);

-- The nearest-rank percentile of a list of values.
CREATE MACRO nearest_rank(list_of_values, percent) AS
    list_sort(list_of_values)[greatest(1, ceil_share(len(list_of_values), percent))];

-- The same of counts over windows, of which only the busy ones are listed, ascending; the rest count 0.
CREATE MACRO rank_with_idle(busy, windows, percent) AS
    CASE WHEN windows IS NULL THEN NULL
         ELSE coalesce(
             busy[greatest(0, ceil_share(windows, percent) - windows + coalesce(len(busy), 0))], 0) END;

-- Items of a list, or of text such as 'a, b' or '[a, b]', as text.
CREATE MACRO items(list_or_text) AS
    CAST('[' || trim(CAST(list_or_text AS VARCHAR), '[] ') || ']' AS VARCHAR[]);

-- The number, and the unit in lower case, of a size such as '1.5TiB'.
CREATE MACRO size_number(size) AS
    CAST(nullif(regexp_extract(
        CAST(size AS VARCHAR), '^\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*[A-Za-z]*\s*$', 1), '') AS DECIMAL(20, 6));
CREATE MACRO size_unit(size) AS lower(regexp_extract(CAST(size AS VARCHAR), '([A-Za-z]*)\s*$', 1));

-- Bytes of a unit: powers of 1000 for KB..PB, of 1024 for KiB..PiB; null for anything else.
CREATE MACRO unit_bytes(unit) AS CASE unit
    WHEN 'b' THEN 1
    WHEN 'kb' THEN 1000 WHEN 'mb' THEN 1000000 WHEN 'gb' THEN 1000000000
    WHEN 'tb' THEN 1000000000000 WHEN 'pb' THEN 1000000000000000
    WHEN 'kib' THEN 1024 WHEN 'mib' THEN 1048576 WHEN 'gib' THEN 1073741824
    WHEN 'tib' THEN 1099511627776 WHEN 'pib' THEN 1125899906842624
END;

-- How many blocks or tokens a unit such as 'mtokens' is; null for anything else.
CREATE MACRO unit_count(unit) AS CASE regexp_replace(unit, '(blocks?|tokens?)$', '-')
    WHEN '-' THEN 1
    WHEN 'k-' THEN 1000 WHEN 'm-' THEN 1000000 WHEN 'g-' THEN 1000000000 WHEN 'b-' THEN 1000000000
    WHEN 't-' THEN 1000000000000
END;

-- Bytes of a size such as '1.5TiB'.
CREATE MACRO not_a_size(size) AS
    error('size is ''' || CAST(size AS VARCHAR) || ''', expected a number and a unit, such as 1.5TiB');
CREATE MACRO bytes(size) AS
    CASE WHEN size_number(size) IS NULL OR unit_bytes(size_unit(size)) IS NULL THEN not_a_size(size)
         ELSE CAST(floor(size_number(size) * unit_bytes(size_unit(size))) AS BIGINT) END;

-- The capacity beyond which a run with --max-capacity knows nothing; null where nothing lies beyond.
CREATE MACRO bound_blocks() AS (
    SELECT CASE WHEN beyond_blocks > 0 OR forgotten_blocks > 0 THEN max_capacity_blocks END FROM run);

-- Whether requests touched no other blocks than those that were looked up and may hit: no engine's rules.
CREATE MACRO is_plain() AS (SELECT NOT compute_last_token AND NOT output_blocks FROM run);

-- True, or an error where reuse runs are missing that rules or a bound left out.
CREATE MACRO has_all_runs() AS
    CASE WHEN is_plain() AND bound_blocks() IS NULL THEN true
         ELSE error('this takes every reuse: replay without engine rules and without --max-capacity') END;

-- The same number of blocks, or an error where the run knows nothing of such a capacity.
CREATE MACRO within_bound(blocks) AS (
    SELECT CASE WHEN wanted > bound
        THEN error('a capacity of ' || wanted || ' blocks is above the --max-capacity of this run')
        ELSE wanted END
    FROM (SELECT blocks AS wanted, bound_blocks() AS bound));

-- Whole blocks of a capacity: a number of blocks, '5000blocks', '2.5Mtokens', 'unlimited', 'p99' (what
-- 99 % of the measured requests required at most, at the run's target), or a size such as '2TiB'.
CREATE MACRO capacity_blocks(capacity) AS (
    SELECT within_bound(CASE
        WHEN content = 'unlimited' THEN coalesce(bound_blocks(), distinct_blocks)
        WHEN regexp_full_match(content, 'p(100|[0-9]{1,2}(\.[0-9]+)?)')
            THEN coalesce(nearest_rank(required, substr(content, 2)), 0)
        WHEN regexp_full_match(content, '[0-9]+') THEN CAST(content AS BIGINT)
        WHEN contains(unit, 'block') AND count IS NOT NULL THEN CAST(floor(number * count) AS BIGINT)
        WHEN count IS NOT NULL THEN CAST(floor(number * count) AS BIGINT) // block_size
        WHEN number IS NULL OR unit_size IS NULL THEN not_a_size(content)
        WHEN block_bytes IS NULL
            THEN error('this run has no bytes per token: give capacities in blocks or tokens')
        ELSE CAST(floor(number * unit_size) AS BIGINT) // block_bytes
    END)
    FROM (
        SELECT
            CAST(capacity AS VARCHAR) AS content,
            size_unit(capacity) AS unit,
            size_number(capacity) AS number,
            unit_count(size_unit(capacity)) AS count,
            unit_bytes(size_unit(capacity)) AS unit_size,
            (SELECT list(required_blocks) FROM requests WHERE measured) AS required,
            distinct_blocks,
            block_size,
            block_bytes
        FROM run
    ));

-- Seconds, to the microsecond, as whole microseconds.
CREATE MACRO microseconds(seconds) AS
    CAST(CAST(CAST(seconds AS VARCHAR) AS DECIMAL(18, 6)) * 1000000 AS BIGINT);

-- Where the window of a timestamp begins; windows are counted from 1970.
CREATE MACRO window_start(moment, window_seconds) AS
    time_bucket(to_microseconds(microseconds(window_seconds)), moment, TIMESTAMP '1970-01-01');

-- True, or an error where ages are asked of a trace that has no timestamps.
CREATE MACRO has_timestamps() AS
    CASE WHEN EXISTS (FROM requests WHERE timestamp IS NOT NULL) THEN true
         ELSE error('this trace has no timestamps: ages are unknown') END;

-- A share of 1 as a percentage with two decimals.
CREATE MACRO pct(share) AS round(100.0 * share, 2);

-- What the measured requests asked for, and what unlimited storage would have served: all pools together
-- (pool is null), and each pool.
CREATE VIEW pool_totals AS
SELECT
    pool,
    count(*) AS requests,
    CAST(coalesce(sum(blocks), 0) AS BIGINT) AS blocks,
    CAST(coalesce(sum(ceiling_blocks), 0) AS BIGINT) AS ceiling_blocks,
    CAST(coalesce(sum(input_length), 0) AS BIGINT) AS input_tokens,
    CAST(coalesce(sum(ceiling_tokens), 0) AS BIGINT) AS ceiling_tokens,
    avg(input_length) AS mean_input_tokens
FROM requests
WHERE measured
GROUP BY GROUPING SETS ((), (pool))
HAVING grouping(pool) = 1 OR pool IS NOT NULL;

-- Reuse runs of measured requests, with what is known of the request and of the one that last used the
-- blocks. age_us is the time between the two in microseconds, null where either has no timestamp.
CREATE VIEW measured_runs AS
SELECT
    reuse_runs.*,
    request.pool,
    request.timestamp,
    request.session_id,
    source.session_id AS source_session_id,
    epoch_us(request.timestamp) - epoch_us(source.timestamp) AS age_us
FROM reuse_runs
JOIN requests AS request ON request.request_id = reuse_runs.request_id
JOIN requests AS source ON source.request_id = reuse_runs.source_request_id
WHERE request.measured;

-- Measured requests with their hits at a capacity of each pool.
CREATE MACRO request_hits(capacity) AS TABLE
SELECT
    requests.*,
    CAST(coalesce(served.hit_blocks, 0) AS BIGINT) AS hit_blocks,
    CAST(coalesce(served.hit_tokens, 0) AS BIGINT) AS hit_tokens
FROM requests
LEFT JOIN (
    SELECT
        request_id,
        sum(hits(depth, depth_head_first, blocks, limits.capacity_blocks)) AS hit_blocks,
        sum(tokens_per_block * hits(depth, depth_head_first, blocks, limits.capacity_blocks)) AS hit_tokens
    FROM reuse_runs, (SELECT capacity_blocks(capacity) AS capacity_blocks) AS limits
    GROUP BY request_id
) AS served ON requests.request_id = served.request_id
WHERE requests.measured;
