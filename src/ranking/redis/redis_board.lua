#!lua name=dibs_rank
-- The board in Redis: how much of each product was sold, by day and by window.
--
-- KEYS, all with the tag {rank}:
--   zs:product:{rank}:2026-11-15                  zset  product -> sold on that day
--   zs:product:{rank}:sum:2026-11-13_2026-11-15   zset  product -> sold in that window, and a
--                                                 fraction: sold on its last day / 2^25
--   zs:product:{rank}:meta                        hash  the place in the feed that all of them
--                                                 stand for (feed_id, written_at), the floor, and
--                                                 how many products each of them has
--   zs:product:{rank}:builder                     string  who builds the board anew
--   zs:product:{rank}:build:TOKEN:…               what is being built, with a meta of its own
--   cache:product:{rank}:top_selling              string  the last answer
--   cache:product:{rank}:refresher                string  who works the next one out
--
-- Days behind the floor are kept, and windows that end later than the day behind it. Of the sums
-- the zset's own order is the ranking's but for products of one score, which come with falling ids
-- where the ranking wants rising ones.
--
-- Lua has no rollback: every function reads and checks all it needs first, which also proves the
-- types of the keys, and only then writes. A zset whose size is not the one noted in meta was
-- deleted, has expired or was written to by someone else: the board is then GONE as a whole, and is
-- built anew from the ledger.
--
-- An answer begins with a word: OK, GONE (there is no board, or no cached answer), MOVED (it stands elsewhere in the
-- feed), FULL (a number beyond what a score can hold), BUSY (another one is at it), LOST (what was
-- being built is no longer there), or the error DIBSBAD: keys or arguments that are not ours.

local VERSION = 1
local UNIT = 33554432 -- 2^25: a day's sales of a product stay below, three days' below 2^27
local BUILD_MS = 10000 -- for so long after its last sign a builder counts as alive
local REFRESH_MS = 5000 -- for so long the others wait for who works an answer out
local LEFT_OVER_S = 3600 -- after which what a dead builder left behind goes

local function fail(words)
  error(redis.error_reply('DIBSBAD ' .. words))
end

local function whole(text, name)
  if not text or not string.find(text, '^%-?%d+$') then
    fail(name .. ' is not a number')
  end
  return tonumber(text)
end

local function number_text(number)
  return string.format('%.17g', number)
end

local function check_keys(keys, count_min)
  if #keys < count_min then
    fail(#keys .. ' keys instead of ' .. count_min)
  end
  for _, key in ipairs(keys) do
    if not string.find(key, '{rank}', 1, true) then
      fail('a key without the tag')
    end
  end
end

-- --- reading ---

local function is_counters(field)
  return string.sub(field, 1, 3) == 'zs:'
end

-- What a hash has; nothing when it is none: what somebody else has put there is replaced.
local function read_hash(key)
  local fields = redis.pcall('HGETALL', key)
  return fields.err and {} or fields
end

-- The place, the floor and the sizes; nil: there is no board.
local function read_meta(key)
  local fields = read_hash(key)
  local meta = {sizes = {}}
  for i = 1, #fields, 2 do
    if is_counters(fields[i]) then
      meta.sizes[fields[i]] = tonumber(fields[i + 1])
    else
      meta[fields[i]] = fields[i + 1]
    end
  end
  for _, name in ipairs{'feed_id', 'written_at', 'floor'} do
    if not string.find(meta[name] or '', '^%-?%d+$') then
      return nil
    end
  end
  return meta
end

local function is_whole(meta, key)
  return redis.pcall('ZCARD', key) == (meta.sizes[key] or 0)
end

-- --- counting ---

-- Reads the changes of each key from the arguments: how many, then product, what was sold more, and
-- how much of it on the last day of a window.
local function read_changes(args, at, keys, first_key)
  local all = {}
  for k = first_key, #keys do
    local change = {key = keys[k], expires_at = args[at], is_sum = args[at + 1] == 'sum',
      products = {}, more = {}}
    whole(args[at], 'an expiry')
    local count = whole(args[at + 2], 'a count')
    at = at + 3
    for _ = 1, count do
      local product, sold, last = args[at], whole(args[at + 1], 'sold'), whole(args[at + 2], 'last')
      if not change.more[product] then
        change.products[#change.products + 1] = product
        change.more[product] = 0
      end
      change.more[product] = change.more[product] + sold + (change.is_sum and last / UNIT or 0)
      at = at + 3
    end
    all[#all + 1] = change
  end
  if at ~= #args + 1 then
    fail('arguments that belong nowhere')
  end
  return all
end

-- Notes what the scores and the size become; OK, or the word for why they cannot.
local function work_out(change, size)
  change.size, change.is_new = size, size == 0
  if #change.products == 0 then
    return 'OK'
  end
  local scores = redis.call('ZMSCORE', change.key, unpack(change.products))
  change.set, change.gone = {}, {}
  for i, product in ipairs(change.products) do
    local score = tonumber(scores[i] or '0') + change.more[product]
    if score < 0 then
      return 'GONE' -- nobody takes back more than was sold
    elseif score >= (change.is_sum and 4 * UNIT or UNIT) then
      return 'FULL'
    elseif score == 0 then
      change.gone[#change.gone + 1] = product
    else
      change.set[#change.set + 1] = number_text(score)
      change.set[#change.set + 1] = product
    end
    change.size = change.size + (score == 0 and 0 or 1) - (scores[i] and 1 or 0)
  end
  return 'OK'
end

-- Writes it, and adds the size to what meta is told.
local function write(change, fields)
  if change.set and #change.set > 0 then
    redis.call('ZADD', change.key, unpack(change.set))
  end
  if change.gone and #change.gone > 0 then
    redis.call('ZREM', change.key, unpack(change.gone))
  end
  fields[#fields + 1] = change.key
  fields[#fields + 1] = change.size
end

-- KEYS: meta, counters. ARGS: the place it must stand at (feed_id, written_at, floor), the place
-- behind, then for each of the counters when it expires (ms), "day" or "sum", and its changes.
local function apply(keys, args)
  check_keys(keys, 1)
  for i = 1, 5 do
    whole(args[i], 'the place')
  end
  local changes = read_changes(args, 6, keys, 2)
  local meta = read_meta(keys[1])
  if not meta then
    return {'GONE'}
  elseif meta.feed_id ~= args[1] or meta.written_at ~= args[2] or meta.floor ~= args[3] then
    return {'MOVED'}
  end
  for _, change in ipairs(changes) do
    local word = is_whole(meta, change.key) and work_out(change, meta.sizes[change.key] or 0)
      or 'GONE'
    if word ~= 'OK' then
      return {word}
    end
  end
  local fields = {'feed_id', args[4], 'written_at', args[5]}
  for _, change in ipairs(changes) do
    write(change, fields)
    if change.is_new then
      redis.call('PEXPIREAT', change.key, change.expires_at)
    end
  end
  redis.call('HSET', keys[1], unpack(fields))
  return {'OK'}
end

-- KEYS: meta. ARGS: the floor, the first day and the first window's end that are kept, as text.
local function forget(keys, args)
  check_keys(keys, 1)
  local meta = read_meta(keys[1])
  local floor = whole(args[1], 'the floor')
  if not args[2] or not args[3] then
    fail('no day')
  elseif not meta then
    return {'GONE'}
  elseif floor <= tonumber(meta.floor) then
    return {'OK'}
  end
  redis.call('HSET', keys[1], 'floor', args[1])
  for key in pairs(meta.sizes) do
    local window_end = string.match(key, ':sum:[%d-]+_([%d-]+)$')
    local day = string.match(key, '([%d-]+)$')
    if (window_end or day) < (window_end and args[3] or args[2]) then
      redis.call('UNLINK', key)
      redis.call('HDEL', keys[1], key)
    end
  end
  return {'OK'}
end

-- --- building ---

-- KEYS: builder. ARGS: a token.
local function build_begin(keys, args)
  check_keys(keys, 1)
  if not args[1] or args[1] == '' then
    fail('no token')
  elseif not redis.call('SET', keys[1], args[1], 'NX', 'PX', BUILD_MS) then
    return {'BUSY'}
  end
  return {'OK'}
end

-- KEYS: builder, the meta and the counters that are being built. ARGS: the token, then the changes
-- as apply() has them.
local function build_add(keys, args)
  check_keys(keys, 2)
  local changes = read_changes(args, 2, keys, 3)
  local sizes = {sizes = {}}
  for i, size in ipairs(#changes == 0 and {} or redis.call('HMGET', keys[2],
      unpack(keys, 3, #keys))) do
    sizes.sizes[keys[i + 2]] = tonumber(size or '0')
  end
  if redis.call('GET', keys[1]) ~= args[1] then
    return {'LOST'}
  end
  for _, change in ipairs(changes) do
    local word = is_whole(sizes, change.key) and work_out(change, sizes.sizes[change.key] or 0)
      or 'LOST'
    if word ~= 'OK' then
      return {word}
    end
  end
  local fields = {}
  for _, change in ipairs(changes) do
    write(change, fields)
    redis.call('EXPIRE', change.key, LEFT_OVER_S)
  end
  if #fields > 0 then
    redis.call('HSET', keys[2], unpack(fields))
    redis.call('EXPIRE', keys[2], LEFT_OVER_S)
  end
  redis.call('PEXPIRE', keys[1], BUILD_MS)
  return {'OK'}
end

-- KEYS: builder, the meta that was built, the meta of the board, then by turns counters that were
-- built and what they become. ARGS: the token, feed_id, written_at, the floor, and for each pair
-- when it expires (ms).
local function build_end(keys, args)
  check_keys(keys, 3)
  local pairs_count = (#keys - 3) / 2
  for i = 2, 4 + pairs_count do
    whole(args[i], 'the place')
  end
  local built = {sizes = {}}
  local fields = read_hash(keys[2])
  for i = 1, #fields, 2 do
    built.sizes[fields[i]] = tonumber(fields[i + 1])
  end
  if redis.call('GET', keys[1]) ~= args[1] then
    return {'LOST'}
  end
  for i = 1, pairs_count do
    if not is_whole(built, keys[2 + 2 * i]) then
      return {'LOST'}
    end
  end
  local before = read_hash(keys[3])
  for i = 1, #before, 2 do
    if is_counters(before[i]) then
      redis.call('UNLINK', before[i])
    end
  end
  redis.call('UNLINK', keys[3])
  redis.call('HSET', keys[3], 'feed_id', args[2], 'written_at', args[3], 'floor', args[4])
  for i = 1, pairs_count do
    local from, to = keys[2 + 2 * i], keys[3 + 2 * i]
    redis.call('UNLINK', to)
    if built.sizes[from] and built.sizes[from] > 0 then
      redis.call('RENAME', from, to)
      redis.call('PEXPIREAT', to, args[4 + i])
      redis.call('HSET', keys[3], to, built.sizes[from])
    end
  end
  redis.call('UNLINK', keys[1], keys[2])
  return {'OK'}
end

-- KEYS: builder, and all that was being built. ARGS: the token. Lets another one build.
local function build_stop(keys, args)
  check_keys(keys, 2)
  if redis.call('GET', keys[1]) == args[1] then
    redis.call('DEL', keys[1])
  end
  redis.call('UNLINK', unpack(keys, 2, #keys))
  return {'OK'}
end

-- --- questions ---

-- KEYS: meta. Answers the place and the floor, when all counters are there.
local function place(keys)
  check_keys(keys, 1)
  local meta = read_meta(keys[1])
  if not meta then
    return {'GONE'}
  end
  for key in pairs(meta.sizes) do
    if not is_whole(meta, key) then
      return {'GONE'}
    end
  end
  return {'OK', meta.feed_id, meta.written_at, meta.floor}
end

-- KEYS: meta, a day's or a window's counters. ARGS: "day" or "sum", the highest floor that still
-- keeps them. The beginning of an answer, and the size.
local function open_question(keys, args)
  check_keys(keys, 2)
  local meta = read_meta(keys[1])
  local floor_max = whole(args[2], 'the floor')
  if args[1] ~= 'day' and args[1] ~= 'sum' then
    fail('neither day nor sum')
  elseif not meta or tonumber(meta.floor) > floor_max or not is_whole(meta, keys[2]) then
    return {'GONE'}, 0
  end
  return {'OK', meta.feed_id, meta.written_at}, meta.sizes[keys[2]] or 0
end

local function add_line(answer, kind, rank, product, score)
  local number = tonumber(score)
  local sold = math.floor(number)
  local last = kind == 'sum' and (number - sold) * UNIT or sold
  answer[#answer + 1] = string.format('%d', rank)
  answer[#answer + 1] = product
  answer[#answer + 1] = string.format('%d', sold)
  answer[#answer + 1] = string.format('%d', last)
end

-- Adds the lines of those ranks. Runs of one score are asked for by that score, with rising ids:
-- which of them are among these ranks depends on it.
local function add_ranks(answer, key, kind, from, to)
  local found = redis.call('ZREVRANGE', key, from - 1, to - 1, 'WITHSCORES')
  local at, rank = 1, from
  while at <= #found do
    local score, stop = found[at + 1], at
    while found[stop + 3] == score do
      stop = stop + 2
    end
    local count = (stop - at) / 2 + 1
    local before = rank == from and rank - 1 - redis.call('ZCOUNT', key, '(' .. score, '+inf') or 0
    local products = redis.call('ZRANGEBYSCORE', key, score, score, 'LIMIT', before, count)
    for _, product in ipairs(products) do
      add_line(answer, kind, rank, product, score)
      rank = rank + 1
    end
    at = stop + 2
  end
end

local function rank_of(key, product)
  local score = redis.call('ZSCORE', key, product)
  if not score then
    return nil
  end
  local above = redis.call('ZCOUNT', key, '(' .. score, '+inf')
  local below = redis.call('ZCOUNT', key, '-inf', '(' .. score)
  return above + redis.call('ZRANK', key, product) - below + 1, score
end

-- More ARGS: how many. Answers rank, product, sold, sold on the last day of each, best first.
local function top(keys, args)
  local answer, size = open_question(keys, args)
  local limit = whole(args[3], 'the limit')
  if size > 0 and limit > 0 then
    add_ranks(answer, keys[2], args[1], 1, math.min(limit, size))
  end
  return answer
end

-- More ARGS: products. The same of those that have a rank, in no order.
local function of(keys, args)
  local answer, size = open_question(keys, args)
  for i = 3, #args do
    local rank, score = nil, nil
    if size > 0 then
      rank, score = rank_of(keys[2], args[i])
    end
    if rank then
      add_line(answer, args[1], rank, args[i], score)
    end
  end
  return answer
end

-- More ARGS: a product, and how many on each side. The same of it and its neighbours.
local function around(keys, args)
  local answer, size = open_question(keys, args)
  local distance = whole(args[4], 'the distance')
  local rank = size > 0 and rank_of(keys[2], args[3])
  if rank then
    add_ranks(answer, keys[2], args[1], math.max(1, rank - distance),
      math.min(size, rank + distance))
  end
  return answer
end

-- More ARGS: from where (0), and how many. Answers how many there are, then product and sold.
local function visit(keys, args)
  local answer, size = open_question(keys, args)
  local from, count = whole(args[3], 'from where'), whole(args[4], 'how many')
  answer[#answer + 1] = size
  if size > 0 then
    for _, word in ipairs(redis.call('ZRANGE', keys[2], from, from + count - 1, 'WITHSCORES')) do
      answer[#answer + 1] = word
    end
  end
  return answer
end

-- --- the cached answer ---

-- KEYS: cache. ARGS: for how long answers are kept (ms). Answers the text and how old it is (ms).
local function recall(keys, args)
  check_keys(keys, 1)
  local keep_ms = whole(args[1], 'for how long')
  local text, left_ms = redis.pcall('GET', keys[1]), redis.call('PTTL', keys[1])
  if type(text) ~= 'string' or left_ms < 0 then
    return {'GONE'}
  end
  return {'OK', text, string.format('%d', math.max(0, keep_ms - left_ms))}
end

-- KEYS: refresher. ARGS: a token.
local function refresh(keys, args)
  check_keys(keys, 1)
  if not args[1] or args[1] == '' then
    fail('no token')
  elseif not redis.call('SET', keys[1], args[1], 'NX', 'PX', REFRESH_MS) then
    return {'BUSY'}
  end
  return {'OK'}
end

-- KEYS: refresher, cache. ARGS: the refresher's token, the answer, for how long (ms). One that was
-- too slow is told so, and keeps nothing.
local function keep(keys, args)
  check_keys(keys, 2)
  local keep_ms = whole(args[3], 'for how long')
  local holder = redis.call('GET', keys[1])
  if holder ~= args[1] then
    return {'LOST'}
  end
  redis.call('SET', keys[2], args[2], 'PX', keep_ms)
  redis.call('DEL', keys[1])
  return {'OK'}
end

local function version()
  return VERSION
end

redis.register_function('dibs_rank_apply', apply)
redis.register_function('dibs_rank_forget', forget)
redis.register_function('dibs_rank_build_begin', build_begin)
redis.register_function('dibs_rank_build_add', build_add)
redis.register_function('dibs_rank_build_end', build_end)
redis.register_function('dibs_rank_build_stop', build_stop)
redis.register_function('dibs_rank_refresh', refresh)
redis.register_function('dibs_rank_keep', keep)

local function register_reader(name, callback)
  redis.register_function{function_name = name, callback = callback, flags = {'no-writes'}}
end
register_reader('dibs_rank_place', place)
register_reader('dibs_rank_top', top)
register_reader('dibs_rank_of', of)
register_reader('dibs_rank_around', around)
register_reader('dibs_rank_visit', visit)
register_reader('dibs_rank_recall', recall)
register_reader('dibs_rank_version', version)
