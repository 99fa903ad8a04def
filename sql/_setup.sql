-- Macros that every connection gets, over the views requests, reuse_runs, curve and run.

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

-- Bytes of a size such as '1.5TiB': powers of 1000 for KB..PB, of 1024 for KiB..PiB.
CREATE MACRO bytes(size) AS
    CAST(floor(CAST(regexp_extract(CAST(size AS VARCHAR), '^\s*([0-9.]+)', 1) AS DECIMAL(20, 6))
        * CASE lower(regexp_extract(CAST(size AS VARCHAR), '([A-Za-z]*)\s*$', 1))
            WHEN 'b' THEN 1
            WHEN 'kb' THEN 1000 WHEN 'mb' THEN 1000000 WHEN 'gb' THEN 1000000000
            WHEN 'tb' THEN 1000000000000 WHEN 'pb' THEN 1000000000000000
            WHEN 'kib' THEN 1024 WHEN 'mib' THEN 1048576 WHEN 'gib' THEN 1073741824
            WHEN 'tib' THEN 1099511627776 WHEN 'pib' THEN 1125899906842624
            ELSE error('a size needs a unit such as GiB, found ' || CAST(size AS VARCHAR))
          END) AS BIGINT);

-- Blocks that fit into a size; needs a run that knows its bytes per token.
CREATE MACRO capacity_blocks(size) AS
    CASE WHEN (SELECT block_bytes FROM run) IS NULL
         THEN error('this run has no bytes per token: give capacities in blocks')
         ELSE bytes(size) // (SELECT block_bytes FROM run) END;

-- A share of 1 as a percentage with two decimals.
CREATE MACRO pct(share) AS round(100.0 * share, 2);
