#!lua name=dibs
-- The Redis gate. Each function decides or changes one policy in one atomic step.
--
-- Lua has no rollback: every function reads all it needs first, which also proves the types of the
-- keys, and only then writes. The number of commands per call does not depend on the batch.
--
-- KEYS of every function, all with the policy's hash tag:
--   1 REMAINING  string  stock left in the gate
--   2 PENDING    zset    seq -> "nth:lease:requested_at:request_id:user"; the outbox
--   3 ISSUED     hash    user -> "seq:nth:state:bound:request_id", several joined by commas
--   4 LEASE      list    "id:first:next:end" of each lease, oldest first
--   5 META       hash    limit, window, pause, close, stock numbers, version
--   6 KEYS       hash    request id of an Idempotency-Key -> "seq:nth:user"
--   7 BOUND      zset    seq -> "request_id:seq": keys bound later, for the ledger; the outbox
-- The state of a claim is P (pending), I (issued), R (redeemed) or C (cancelled).
--
-- A policy is armed by a token in a variable of this library: after a restart, a promotion, a slot
-- move or a reload it is unarmed, though its keys may have survived, and nobody is answered until
-- the steward has reconciled it with the ledger.

local VERSION = 1
local BOUND_MAX = 31
local KEYED = 56   -- '8': the first hex digit of a request id made from a key is this or above
local BLOCKED = 98 -- 'b'
local HOLD_BACK_MS = 500
local BATCH_MAX = 2000 -- what one call may carry: Lua's stack is limited

local armed = {}

local function whole(number)
  return string.format('%.0f', number)
end

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local META = {'limit', 'opens', 'closes', 'paused', 'closed', 'unleased', 'total', 'version',
  'lease_top', 'seq_top', 'issued', 'changes', 'changed_at', 'sold_at'}

-- Armed is what has its token both here and in its keys: a restart loses the one, FLUSHALL the other.
local function is_armed(key)
  return armed[key] and redis.call('HGET', key, 'armed') == armed[key]
end

local function read_meta(key)
  local values = redis.call('HMGET', key, unpack(META))
  local meta = {}
  for i, name in ipairs(META) do
    meta[name] = tonumber(values[i])
  end
  return meta.version and meta or nil
end

local function read_leases(key)
  local leases = {}
  for i, text in ipairs(redis.call('LRANGE', key, 0, -1)) do
    local id, first, next_seq, stop = string.match(text, '^(%d+):(%d+):(%d+):(%d+)$')
    if not id then
      return nil, redis.error_reply('DIBSBAD a lease is not readable')
    end
    leases[i] = {id = tonumber(id), first = tonumber(first), next = tonumber(next_seq),
      stop = tonumber(stop), at = i - 1}
  end
  return leases
end

local function lease_text(lease)
  return whole(lease.id) .. ':' .. whole(lease.first) .. ':' .. whole(lease.next) .. ':' ..
    whole(lease.stop)
end

-- "17:1:I:0:ab…" and its like, latest last.
local function read_held(text)
  local held = {}
  if text then
    for seq, nth, state, bound, request in
      string.gmatch(text, '(%d+):(%d+):(%a):(%d+):(%x+)') do
      held[#held + 1] = {seq = tonumber(seq), nth = tonumber(nth), state = state,
        bound = tonumber(bound), request = request}
    end
  end
  return held
end

local function held_text(held)
  local parts = {}
  for i, claim in ipairs(held) do
    parts[i] = whole(claim.seq) .. ':' .. claim.nth .. ':' .. claim.state .. ':' .. claim.bound ..
      ':' .. claim.request
  end
  return table.concat(parts, ',')
end

-- Runs HSET and the like with arguments that may be more than Lua can unpack at once; an even number
-- at a time, since they may be pairs.
local function call_many(command, key, arguments)
  for from = 1, #arguments, 4000 do
    redis.call(command, key, unpack(arguments, from, math.min(from + 3999, #arguments)))
  end
end

-- --- claiming ---

local function is_keyed(request)
  return string.byte(request, 1) >= KEYED
end

-- What one wish gets, apart from winning. The order is the contract's.
local function refuse(meta, now, blocked, held_count)
  if blocked then
    return 'B'
  elseif meta.closed > 0 or (meta.closes > 0 and now >= meta.closes) then
    return 'C'
  elseif meta.paused > 0 then
    return 'P'
  elseif now < meta.opens then
    return 'N' .. whole(meta.opens)
  elseif held_count >= meta.limit then
    return 'L'
  end
end

local function answer_held(claim)
  return 'H' .. whole(claim.seq) .. ':' .. claim.nth .. ':' .. claim.state
end

-- The smallest place among the user's allowed coupons that is free.
local function free_nth(held)
  local taken = {}
  for _, claim in ipairs(held) do
    taken[claim.nth] = true
  end
  local nth = 1
  while taken[nth] do
    nth = nth + 1
  end
  return nth
end

-- One batch: what it knows, and everything it will write, gathered while it decides.
local function new_batch(meta, leases, remaining, now, texts, keys_of)
  return {meta = meta, leases = leases, lease_at = 1, remaining = remaining, now = now,
    texts = texts, keys_of = keys_of, touched = {}, pending = {}, keys = {}, bound = {}}
end

-- The claim that this key is bound to. One that is not held any more was cancelled.
local function answer_key(batch, key, user)
  local seq, nth, owner = string.match(key, '^(%d+):(%d+):(.*)$')
  if owner ~= user then
    return 'K'
  end
  for _, own in ipairs(read_held(batch.texts[user])) do
    if own.seq == tonumber(seq) then
      return answer_held(own)
    end
  end
  return 'H' .. seq .. ':' .. nth .. ':C'
end

-- A 200 for a claim that is held binds the key it came with.
local function bind_key(batch, user, request, held, own)
  if own.bound >= BOUND_MAX then
    return
  end
  own.bound = own.bound + 1
  batch.texts[user] = held_text(held)
  batch.touched[user] = true
  batch.keys_of[request] = own.seq .. ':' .. own.nth .. ':' .. user
  batch.keys[#batch.keys + 1] = request
  batch.bound[#batch.bound + 1] = own.seq
  batch.bound[#batch.bound + 1] = request .. ':' .. own.seq
end

local function win(batch, user, request, keyed, nth)
  local leases = batch.leases
  while leases[batch.lease_at] and leases[batch.lease_at].next >= leases[batch.lease_at].stop do
    batch.lease_at = batch.lease_at + 1
  end
  local lease = leases[batch.lease_at]
  if batch.remaining <= 0 or not lease then
    return batch.meta.unleased > 0 and 'G' or 'S'
  end
  local seq = lease.next
  local place = seq .. ':' .. nth
  local text = batch.texts[user]
  lease.next = seq + 1
  lease.changed = true
  batch.remaining = batch.remaining - 1
  batch.texts[user] = (text and text .. ',' or '') .. place .. ':P:0:' .. request
  batch.touched[user] = true
  local at = #batch.pending
  batch.pending[at + 1] = seq
  batch.pending[at + 2] = nth .. ':' .. lease.id .. ':' .. batch.now .. ':' .. request .. ':' .. user
  if keyed then
    batch.keys_of[request] = place .. ':' .. user
    batch.keys[#batch.keys + 1] = request
  end
  return 'W' .. place
end

-- `closed` is what nobody who holds nothing can get past.
local function decide(batch, user, request, blocked, closed)
  local keyed = is_keyed(request)
  local key = keyed and batch.keys_of[request]
  if key then
    return answer_key(batch, key, user)
  end
  local text = batch.texts[user]
  if not text then
    return blocked and 'B' or closed or win(batch, user, request, keyed, 1)
  end
  local held = read_held(text)
  local mine = batch.meta.limit == 1 and held[#held] or nil
  for _, own in ipairs(held) do
    if own.request == request then
      mine = own
    end
  end
  if mine then
    if keyed and mine.request ~= request then
      bind_key(batch, user, request, held, mine)
    end
    return answer_held(mine)
  end
  return refuse(batch.meta, batch.now, blocked, #held) or
    win(batch, user, request, keyed, free_nth(held))
end

local function write_batch(keys, batch)
  if #batch.pending > 0 then
    redis.call('SET', keys[1], batch.remaining)
    call_many('ZADD', keys[2], batch.pending)
    for _, lease in ipairs(batch.leases) do
      if lease.changed then
        redis.call('LSET', keys[4], lease.at, lease_text(lease))
      end
    end
    if batch.remaining == 0 then
      redis.call('HSET', keys[5], 'sold_at', batch.now)
    end
  end
  local fields = {}
  for user in pairs(batch.touched) do
    fields[#fields + 1] = user
    fields[#fields + 1] = batch.texts[user]
  end
  if #fields > 0 then
    call_many('HSET', keys[3], fields)
  end
  if #batch.keys > 0 then
    local named = {}
    for _, request in ipairs(batch.keys) do
      named[#named + 1] = request
      named[#named + 1] = batch.keys_of[request]
    end
    call_many('HSET', keys[6], named)
    if #batch.bound > 0 then
      call_many('ZADD', keys[7], batch.bound)
    end
  end
end

-- ARGS: the batch's name, the request ids (32 hex digits each) in one text, one letter for each wish
-- ('b': the user is blocked, else '-'), then the users.
-- Answers the name, the time, and one text with the verdicts in order, parted by blanks:
--   W seq:nth  won         H seq:nth:state  held       K another's key   B blocked   C closed
--   P paused   N opens_at  L limit reached  S sold out G more in the ledger
local function claim(keys, args)
  if not is_armed(keys[5]) then
    return redis.error_reply('UNARMED')
  end
  local requests, flags, count = args[2], args[3], #args - 3
  if count < 1 or count > BATCH_MAX or #requests ~= 32 * count or #flags ~= count then
    return redis.error_reply('DIBSBAD a batch of ' .. count)
  end
  local meta = read_meta(keys[5])
  if not meta then
    return redis.error_reply('NOPOLICY')
  end
  local key_names = {}
  for i = 1, count do
    if string.byte(requests, 32 * i - 31) >= KEYED then
      key_names[#key_names + 1] = string.sub(requests, 32 * i - 31, 32 * i)
    end
  end
  local remaining = tonumber(redis.call('GET', keys[1]) or '0')
  redis.call('ZCARD', keys[2])
  redis.call('ZCARD', keys[7])
  local leases, broken = read_leases(keys[4])
  if broken then
    return broken
  end
  local texts, keys_of = {}, {}
  local found = redis.call('HMGET', keys[3], unpack(args, 4))
  for i = 1, count do
    texts[args[i + 3]] = found[i]
  end
  if #key_names > 0 then
    for i, text in ipairs(redis.call('HMGET', keys[6], unpack(key_names))) do
      keys_of[key_names[i]] = text
    end
  else
    redis.call('HLEN', keys[6])
  end
  local batch = new_batch(meta, leases, remaining, now_ms(), texts, keys_of)
  local closed = refuse(meta, batch.now, false, 0)
  local answers = {}
  for i = 1, count do
    local user = args[i + 3]
    local request = string.sub(requests, 32 * i - 31, 32 * i)
    answers[i] = decide(batch, user, request, string.byte(flags, i) == BLOCKED, closed)
  end
  write_batch(keys, batch)
  return {args[1], whole(batch.now), table.concat(answers, ' ')}
end

-- --- what the ledger did with them ---

-- ARGS: seq, state (I issued, V void or merged) and user of each claim that the ledger has settled.
-- A claim that is not pending any more is passed over, so a second call does nothing.
local function acknowledge(keys, args)
  local users, state_of, low, high = {}, {}, nil, nil
  for i = 1, #args, 3 do
    local seq = tonumber(args[i])
    low, high = math.min(low or seq, seq), math.max(high or seq, seq)
    state_of[seq] = args[i + 1]
    users[#users + 1] = args[i + 2]
  end
  if #users == 0 or #users > BATCH_MAX or #args ~= 3 * #users then
    return redis.error_reply('DIBSBAD a batch of ' .. #users)
  end
  local found = redis.call('ZRANGE', keys[2], whole(low), whole(high), 'BYSCORE', 'WITHSCORES')
  local texts = redis.call('HMGET', keys[3], unpack(users))
  redis.call('HLEN', keys[6])
  redis.call('HLEN', keys[5])
  local removed, settled, issued = {}, {}, 0
  for i = 1, #found, 2 do
    local seq = tonumber(found[i + 1])
    if state_of[seq] then
      removed[#removed + 1] = found[i]
      settled[seq] = true
      issued = issued + (state_of[seq] == 'I' and 1 or 0)
    end
  end
  local fields, gone, unbound, seen = {}, {}, {}, {}
  for i, user in ipairs(users) do
    if texts[i] and not seen[user] then
      seen[user] = true
      local held, changed = read_held(texts[i]), false
      for at = #held, 1, -1 do
        local own = held[at]
        if settled[own.seq] and own.state == 'P' then
          changed = true
          if state_of[own.seq] == 'I' then
            own.state = 'I'
          else
            table.remove(held, at)
            unbound[#unbound + 1] = own.request -- a claim that came to nothing binds no key
          end
        end
      end
      if changed and #held > 0 then
        fields[#fields + 1] = user
        fields[#fields + 1] = held_text(held)
      elseif changed then
        gone[#gone + 1] = user
      end
    end
  end
  if #removed > 0 then
    call_many('ZREM', keys[2], removed)
  end
  if issued > 0 then
    redis.call('HINCRBY', keys[5], 'issued', issued)
  end
  if #fields > 0 then
    call_many('HSET', keys[3], fields)
  end
  if #gone > 0 then
    call_many('HDEL', keys[3], gone)
  end
  if #unbound > 0 then
    call_many('HDEL', keys[6], unbound)
  end
  return #removed
end

-- ARGS: "request_id:seq" of bound keys that the ledger has.
local function acknowledge_bound(keys, args)
  redis.call('ZREM', keys[7], unpack(args))
  return #args
end

-- ARGS: the user, the seq, the new state: R (redeemed) or C (cancelled).
local function settle(keys, args)
  local user, seq, state = args[1], tonumber(args[2]), args[3]
  local held = read_held(redis.call('HGET', keys[3], user))
  redis.call('HLEN', keys[5])
  for at, own in ipairs(held) do
    if own.seq == seq then
      if state == 'C' then
        table.remove(held, at)
        if own.state ~= 'P' then
          redis.call('HINCRBY', keys[5], 'issued', -1)
        end
      else
        own.state = state
      end
      if #held > 0 then
        redis.call('HSET', keys[3], user, held_text(held))
      else
        redis.call('HDEL', keys[3], user)
      end
      return 1
    end
  end
  return 0
end

-- --- policies and stock ---

-- ARGS: version, limit, opens, closes, paused, closed, unleased, total. An older version than the
-- one held is passed over. Never touches the stock in the gate. A policy that was not there is known
-- from now on, and unarmed.
local function set_policy(keys, args)
  local meta = read_meta(keys[5])
  if meta and meta.version > tonumber(args[1]) then
    return 0
  end
  local changes = (meta and meta.changes or 0) + 1
  redis.call('PERSIST', keys[5])
  redis.call('HSET', keys[5], 'version', args[1], 'limit', args[2], 'opens', args[3], 'closes',
    args[4], 'paused', args[5], 'closed', args[6], 'unleased', args[7], 'total', args[8],
    'changes', whole(changes))
  -- New stock is announced once: what follows does not put its lending off again.
  if not meta or (meta.unleased == 0 and tonumber(args[7]) > 0) then
    redis.call('HSET', keys[5], 'changed_at', whole(now_ms()))
  end
  if not meta then
    redis.call('HSET', keys[5], 'lease_top', '0', 'seq_top', '0', 'issued', '0', 'sold_at', '0')
  end
  return 1
end

-- ARGS: id, first seq and count of a lease. One that is here already is not taken twice; another that
-- is not above every lease and seq seen is refused: a stalled steward's push.
local function lend(keys, args)
  local meta = read_meta(keys[5])
  local id, first, count = tonumber(args[1]), tonumber(args[2]), tonumber(args[3])
  if not meta then
    return redis.error_reply('NOPOLICY')
  end
  local leases, broken = read_leases(keys[4])
  if broken then
    return broken
  end
  for _, lease in ipairs(leases) do
    if lease.id == id then
      return 1
    end
  end
  local remaining = tonumber(redis.call('GET', keys[1]) or '0')
  if id <= meta.lease_top or first <= meta.seq_top then
    return redis.error_reply('STALELEASE')
  end
  -- Servers answer SOLD_OUT from memory for a moment: they hear of new stock before it can be won.
  if meta.sold_at > 0 and now_ms() - meta.changed_at < HOLD_BACK_MS then
    return redis.error_reply('TOOSOON')
  end
  redis.call('RPUSH', keys[4],
    lease_text({id = id, first = first, next = first, stop = first + count}))
  redis.call('SET', keys[1], whole(remaining + count))
  redis.call('HSET', keys[5], 'lease_top', whole(id), 'seq_top', whole(first + count - 1),
    'changes', whole(meta.changes + 1), 'sold_at', '0')
  return 1
end

-- ARGS: how many units (or 'all'), and a name for this recall: the same name again gets the same
-- answer and takes nothing. Answers "id:count" of each lease that shrank.
local function recall(keys, args)
  local meta = read_meta(keys[5])
  if not meta then
    return redis.error_reply('NOPOLICY')
  end
  local last = redis.call('HMGET', keys[5], 'recall', 'recalled')
  if last[1] == args[2] then
    return last[2]
  end
  local leases, broken = read_leases(keys[4])
  if broken then
    return broken
  end
  local remaining = tonumber(redis.call('GET', keys[1]) or '0')
  local wanted = args[1] == 'all' and remaining or tonumber(args[1])
  if wanted > remaining then
    return redis.error_reply('TOOFEW ' .. whole(remaining))
  end
  local left, shrunk = wanted, {}
  for at = #leases, 1, -1 do
    local lease = leases[at]
    local taken = math.min(left, lease.stop - lease.next)
    if taken > 0 then
      lease.stop = lease.stop - taken
      left = left - taken
      shrunk[#shrunk + 1] = whole(lease.id) .. ':' .. whole(lease.stop - lease.first)
      redis.call('LSET', keys[4], lease.at, lease_text(lease))
    end
  end
  local answer = table.concat(shrunk, ' ')
  redis.call('SET', keys[1], whole(remaining - wanted))
  redis.call('HSET', keys[5], 'recall', args[2], 'recalled', answer, 'changes',
    whole(meta.changes + 1))
  return answer
end

-- ARGS: ids of leases that the ledger has closed or fully written: forgets those that are sold.
local function forget_leases(keys, args)
  local leases, broken = read_leases(keys[4])
  if broken then
    return broken
  end
  local forgotten = 0
  for _, lease in ipairs(leases) do
    for _, id in ipairs(args) do
      if lease.id == tonumber(id) and lease.next >= lease.stop then
        forgotten = forgotten + redis.call('LREM', keys[4], 1, lease_text(lease))
      end
    end
  end
  return forgotten
end

-- --- arming ---

-- ARGS: the last seq that was ever lent. Disarms and empties a policy that has nothing pending, before
-- its users are restored; a lease from before stays refused.
local function reset(keys, args)
  armed[keys[5]] = nil
  if redis.call('ZCARD', keys[2]) + redis.call('ZCARD', keys[7]) > 0 then
    return redis.error_reply('PENDING')
  end
  local fields = {}
  for _, name in ipairs(META) do
    fields[#fields + 1] = name
    fields[#fields + 1] = name == 'seq_top' and args[1] or '0'
  end
  redis.call('DEL', unpack(keys))
  redis.call('HSET', keys[5], unpack(fields))
  return 1
end

-- ARGS: user, seq, nth, state (I or R) and request id of active coupons, as the ledger has them.
local function restore(keys, args)
  if is_armed(keys[5]) then
    return redis.error_reply('ARMED')
  end
  local users, held_of, fields, named = {}, {}, {}, {}
  for i = 1, #args, 5 do
    users[#users + 1] = args[i]
  end
  redis.call('HLEN', keys[6])
  for i, text in ipairs(redis.call('HMGET', keys[3], unpack(users))) do
    held_of[users[i]] = held_of[users[i]] or read_held(text)
  end
  for i = 1, #args, 5 do
    local held = held_of[args[i]]
    local known = false
    for _, own in ipairs(held) do
      known = known or own.seq == tonumber(args[i + 1])
    end
    if not known then
      held[#held + 1] = {seq = tonumber(args[i + 1]), nth = tonumber(args[i + 2]),
        state = args[i + 3], bound = 0, request = args[i + 4]}
    end
    if is_keyed(args[i + 4]) then
      named[#named + 1] = args[i + 4]
      named[#named + 1] = args[i + 1] .. ':' .. args[i + 2] .. ':' .. args[i]
    end
  end
  for user, held in pairs(held_of) do
    fields[#fields + 1] = user
    fields[#fields + 1] = held_text(held)
  end
  call_many('HSET', keys[3], fields)
  if #named > 0 then
    call_many('HSET', keys[6], named)
  end
  return #users
end

-- ARGS: request id and "seq:nth:user" of keys that are bound besides a claim's own, or whose
-- claim is not active any more.
local function restore_keys(keys, args)
  if is_armed(keys[5]) then
    return redis.error_reply('ARMED')
  end
  call_many('HSET', keys[6], args)
  return #args / 2
end

-- ARGS: the token, how many active coupons the ledger has. From here on the policy is answered for.
local function arm(keys, args)
  local meta = read_meta(keys[5])
  if not meta then
    return redis.error_reply('NOPOLICY')
  end
  redis.call('HSET', keys[5], 'issued', args[2], 'changes', whole(meta.changes + 1), 'armed',
    args[1])
  armed[keys[5]] = args[1]
  return 1
end

-- ARGS: user, seq, nth, state (I or R; C: only its key answers) and request id of coupons that the
-- ledger gave while this gate was away. Takes no stock; a second call does nothing.
local function enter(keys, args)
  local meta = read_meta(keys[5])
  if not meta then
    return redis.error_reply('NOPOLICY')
  end
  if not is_armed(keys[5]) then
    return redis.error_reply('UNARMED')
  end
  if #args % 5 ~= 0 or #args > 5 * BATCH_MAX then
    return redis.error_reply('DIBSBAD ' .. #args .. ' words of coupons')
  end
  if #args == 0 then
    return 0
  end
  local users, held_of, changed, named, entered = {}, {}, {}, {}, 0
  for i = 1, #args, 5 do
    users[#users + 1] = args[i]
  end
  redis.call('HLEN', keys[6])
  for i, text in ipairs(redis.call('HMGET', keys[3], unpack(users))) do
    held_of[users[i]] = held_of[users[i]] or read_held(text)
  end
  for i = 1, #args, 5 do
    local user, seq, nth, state, request = unpack(args, i, i + 4)
    local held = held_of[user]
    local known = state == 'C'
    for _, own in ipairs(held) do
      known = known or own.seq == tonumber(seq)
    end
    if not known then
      held[#held + 1] = {seq = tonumber(seq), nth = tonumber(nth), state = state, bound = 0,
        request = request}
      changed[user] = true
      entered = entered + 1
    end
    if is_keyed(request) then
      named[#named + 1] = request
      named[#named + 1] = seq .. ':' .. nth .. ':' .. user
    end
  end
  local fields = {}
  for user in pairs(changed) do
    fields[#fields + 1] = user
    fields[#fields + 1] = held_text(held_of[user])
  end
  if #fields > 0 then
    call_many('HSET', keys[3], fields)
    redis.call('HINCRBY', keys[5], 'issued', entered)
    redis.call('HINCRBY', keys[5], 'changes', 1)
  end
  if #named > 0 then
    call_many('HSET', keys[6], named)
  end
  return entered
end

-- ARGS: seconds after which a policy that is closed and has nothing pending is forgotten.
local function retire(keys, args)
  local meta = read_meta(keys[5])
  if not meta or redis.call('ZCARD', keys[2]) > 0 or redis.call('ZCARD', keys[7]) > 0 or
    meta.closed == 0 then
    return 0
  end
  for _, key in ipairs(keys) do
    redis.call('EXPIRE', key, args[1])
  end
  return 1
end

-- --- looking ---

-- Answers whether it is armed, and all the numbers of a policy.
local function count(keys)
  local meta = read_meta(keys[5])
  if not meta then
    return redis.error_reply('NOPOLICY')
  end
  return {is_armed(keys[5]) and 1 or 0, redis.call('GET', keys[1]) or '0',
    redis.call('ZCARD', keys[2]), whole(meta.issued), whole(meta.unleased), whole(meta.total),
    whole(meta.version), whole(meta.changes), whole(meta.sold_at), whole(meta.opens),
    whole(meta.closes), whole(meta.paused), whole(meta.closed)}
end

-- ARGS: the user. Answers what they hold, and how many pending claims are before each.
local function find(keys, args)
  if not is_armed(keys[5]) then
    return redis.error_reply('UNARMED')
  end
  local held = read_held(redis.call('HGET', keys[3], args[1]))
  local found = {}
  for _, own in ipairs(held) do
    local ahead, requested = 0, '0'
    if own.state == 'P' then
      ahead = redis.call('ZCOUNT', keys[2], '-inf', '(' .. whole(own.seq))
      local member = redis.call('ZRANGE', keys[2], whole(own.seq), whole(own.seq), 'BYSCORE')[1]
      requested = member and string.match(member, '^%d+:%d+:(%d+):') or '0'
    end
    found[#found + 1] = whole(own.seq) .. ':' .. own.nth .. ':' .. own.state .. ':' ..
      whole(ahead) .. ':' .. requested
  end
  return found
end

-- ARGS: seq and user of each claim. Answers one letter for each: P while it is pending, I or R once
-- the user holds it for good, V when it came to nothing.
local function settled(keys, args)
  local users, letters = {}, {}
  for i = 2, #args, 2 do
    users[#users + 1] = args[i]
  end
  for i, text in ipairs(redis.call('HMGET', keys[3], unpack(users))) do
    letters[i] = 'V'
    for _, own in ipairs(read_held(text)) do
      if own.seq == tonumber(args[2 * i - 1]) then
        letters[i] = own.state
      end
    end
  end
  return table.concat(letters)
end

-- ARGS: after which seq, and how many. Answers count(), then pending claims as member and seq, in seq
-- order, then bound keys the same way.
local function pending(keys, args)
  local numbers = count(keys)
  if numbers.err then
    return numbers
  end
  return {
    numbers,
    redis.call('ZRANGE', keys[2], '(' .. args[1], '+inf', 'BYSCORE', 'LIMIT', 0, args[2],
      'WITHSCORES'),
    redis.call('ZRANGE', keys[7], '-inf', '+inf', 'BYSCORE', 'LIMIT', 0, args[2])}
end

local function version()
  return VERSION
end

redis.register_function('dibs_claim', claim)
redis.register_function('dibs_acknowledge', acknowledge)
redis.register_function('dibs_acknowledge_bound', acknowledge_bound)
redis.register_function('dibs_settle', settle)
redis.register_function('dibs_set_policy', set_policy)
redis.register_function('dibs_lend', lend)
redis.register_function('dibs_recall', recall)
redis.register_function('dibs_forget_leases', forget_leases)
redis.register_function('dibs_reset', reset)
redis.register_function('dibs_restore', restore)
redis.register_function('dibs_restore_keys', restore_keys)
redis.register_function('dibs_arm', arm)
redis.register_function('dibs_enter', enter)
redis.register_function('dibs_retire', retire)
redis.register_function{function_name = 'dibs_count', callback = count, flags = {'no-writes'}}
redis.register_function{function_name = 'dibs_find', callback = find, flags = {'no-writes'}}
redis.register_function{function_name = 'dibs_pending', callback = pending, flags = {'no-writes'}}
redis.register_function{function_name = 'dibs_version', callback = version, flags = {'no-writes'}}
redis.register_function{function_name = 'dibs_settled', callback = settled, flags = {'no-writes'}}
