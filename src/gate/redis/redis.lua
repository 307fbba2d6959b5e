#!lua name=dibs
-- The Redis gate. Each function decides or changes one policy in one atomic step.
--
-- Lua has no rollback: every function reads and checks all it needs first, which also proves the
-- types of the keys, and only then writes. The number of commands per call does not depend on the
-- batch.
--
-- KEYS of every function, all with the policy's hash tag:
--   1 REMAINING  string  stock left in the gate
--   2 PENDING    zset    seq -> the user, and unless nth is 1 a line feed and nth; the outbox. What
--                        else the ledger needs is in ISSUED
--   3 ISSUED     hash    user -> the claim, its state, how many keys were bound to it later, and a
--                        comma; several in the order of seqs. Behind the last one "P0," is left out
--   4 LEASE      list    "id:first:next:end" of each lease, oldest first
--   5 META       hash    the policy's row, stock numbers, the arming token and the steward's term,
--                        the mark of what is published and its publisher's token, the traces of
--                        pending claims
--   6 KEYS       hash    request id of a user's Idempotency-Key -> "seq:nth:user"
--   7 BOUND      zset    seq -> request id, a colon, seq: keys bound later, for the ledger; the
--                        outbox
-- A claim is its request id, 16 bytes as they are, and "nth:lease:requested_at:seq"; the seq may
-- have zeros before it.
--
-- The state of a claim is P (pending), I (issued) or R (redeemed). Acknowledging takes a claim out
-- of PENDING and leaves ISSUED alone, which would cost more than deciding: one that is P there, and
-- no longer in PENDING, is issued.
--
-- A policy is armed by a token in a variable of this library: after a restart, a promotion, a slot
-- move or a reload it is unarmed, though its keys may have survived, and nobody is answered until
-- the steward has reconciled it with the ledger. It is armed for a short time only, which is renewed
-- while its term is the ledger's newest: a server that stood still while another one took its place
-- finds that time over, and its term is not renewed. A token begins with the number of the database
-- in which its policy is found, and there is one entry for each database and policy: what SWAPDB
-- brings back has another's token.
--
-- What a steward writes carries its term, and is FENCED when the policy has seen a later one.
--
-- Servers answer SOLD_OUT from memory for a moment after they have seen a policy empty: nothing
-- left in the gate, nothing unleased. So stock reaches an empty policy in two steps: it is
-- announced, by a row with unleased units, and HOLD_BACK_MS later it may be lent. A policy that was
-- reset is armed no earlier than that either. What leaves the ledger for the gate is announced to be
-- coming before it does, and counts as unleased here until it has come. So do units that were
-- recalled, until the total is lower, as many are lent again, or a steward finds that none are missing.
--
-- A policy that the ledger has lost, or has an older copy of, is suspended: nobody is answered, nothing
-- is drained, lent or built, and nothing of it goes, until somebody has decided what becomes of it.
--
-- Refusals begin with a word that the caller knows: UNARMED, NOPOLICY, STALELEASE, TOOSOON, TOOFEW,
-- SPREAD, PENDING, ARMED, FENCED, DIBSBAD (keys or arguments that are not ours).

-- What is a constant here, in a line of its own, is one of the same name in C (scripts/embed).
local VERSION = 20
local BOUND_MAX = 31
local KEYED = 128 -- the first byte of a request id that was made from a key is this or above
local HOLD_BACK_MS = 500
local GIVING_MS = 3000 -- a change that has recalled units is over by then
local BATCH_MAX = 2000 -- what one call may carry: Lua's stack is limited
local RECALL_LEASES_MAX = 64
local DAY_MS = 86400000
local TRACE_SIZE = 55 -- a W3C traceparent

-- The letters of verdicts.
local WON = 'W' -- and seq:nth
local HELD = 'H' -- and seq:nth:state
local KEYS_FULL = 'F' -- held, and full of keys
local BLOCKED = 'B'
local CLOSED = 'C'
local PAUSED = 'P'
local NOT_OPEN = 'N' -- and when it opens
local LIMIT_REACHED = 'L'
local SOLD_OUT = 'S'
local LEASE_WANTED = 'G' -- the ledger has more

-- Database and META of a policy -> its token and term, and from when to when it is armed.
local armed = {}
local building = {} -- name of what is built since a reset -> META of its policy
local process -- names this library from its loading on
-- Number of a database -> when somebody who had asked the ledger renewed what is armed there: others
-- may use the other ones.
local renewed_at = {}

local function fail(words)
  error(redis.error_reply(words))
end

local function whole(number)
  return string.format('%d', number)
end

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- Fails unless those arguments are whole numbers.
local function check_whole(args, from, to)
  for i = from, to do
    if not args[i] or not string.find(args[i], '^%d+$') then
      fail('DIBSBAD argument ' .. i .. ' is not a number')
    end
  end
end

local function check_count(args, count)
  if #args ~= count then
    fail('DIBSBAD ' .. #args .. ' arguments instead of ' .. count)
  end
end

-- --- reading ---

-- A policy's row as the ledger has it, in the order in which set_policy() takes it.
local ROW = {'kind', 'value', 'total', 'limit', 'opens', 'closes', 'days', 'expires', 'currency',
  'reserve', 'paused', 'created', 'closed', 'version', 'unleased', 'next', 'name'}
local META = {'version', 'limit', 'opens', 'closes', 'paused', 'closed', 'unleased', 'total',
  'days', 'expires', 'lease_top', 'seq_top', 'issued', 'changes', 'announced_at', 'sold_at', 'reset_at',
  'traced', 'coming', 'giving', 'giving_at', 'term'}
-- What a claim needs of it: each field costs time.
local RULES = {'version', 'limit', 'opens', 'closes', 'paused', 'closed', 'unleased', 'days', 'expires'}

local function entry_name(key, token)
  return string.match(token, '^%d*') .. key
end

-- The entry of a policy whose data is what it was when it was armed, though its time may be over.
-- Its token is both here and in its keys: a restart loses the one, FLUSHALL the other.
local function entry_of(key, meta)
  local entry = meta.armed and armed[entry_name(key, meta.armed)]
  return entry and entry.token == meta.armed and entry or nil
end

-- A clock that went back tells nothing.
local function is_armed(key, meta, now)
  local entry = entry_of(key, meta)
  return entry ~= nil and entry.from <= now and now < entry.upto
end

local function disarm(key)
  local token = redis.call('HGET', key, 'armed')
  if token and entry_of(key, {armed = token}) then
    armed[entry_name(key, token)] = nil
  end
end

-- Those fields as numbers, and the token; nil: there is no such policy.
local function read_meta(key, names)
  names = names or META
  local values = redis.call('HMGET', key, 'armed', unpack(names))
  if not values[2] then
    return nil
  end
  local meta = {armed = values[1]}
  for i, name in ipairs(names) do
    meta[name] = tonumber(values[i + 1] or '0')
    if not meta[name] then
      fail('DIBSBAD ' .. key .. ': ' .. name .. ' is not a number')
    end
  end
  return meta
end

local function need_meta(key, names)
  local meta = read_meta(key, names)
  if not meta then
    fail('NOPOLICY there is no such policy')
  end
  return meta
end

-- A policy that is closed and drained is let go: from then on the ledger can answer for it as well.
-- When it is unarmed, nobody arms it again.
local function is_let_go(key, meta, now)
  return not is_armed(key, meta, now) and redis.call('TTL', key) >= 0
end

local function need_armed(key, meta, now)
  if is_let_go(key, meta, now) then
    fail('NOPOLICY it was let go')
  elseif not is_armed(key, meta, now) then
    fail('UNARMED the policy awaits its steward')
  end
end

local function is_suspended(key)
  return redis.call('HGET', key, 'suspended')
end

local function check_not_suspended(key)
  if is_suspended(key) then
    fail('UNARMED the ledger has lost it, or has an older copy of it')
  end
end

-- 1: it is answered for, 0: it awaits its steward, -1: it is suspended.
local function arming(key, meta, now)
  return is_armed(key, meta, now) and 1 or is_suspended(key) and -1 or 0
end

local function fence(meta, term)
  if meta and tonumber(term) < meta.term then
    fail('FENCED a later term has begun')
  end
end

-- Of a steward that has taken the policy over, or reset it, in its term.
local function need_term(meta, term)
  fence(meta, term)
  if tonumber(term) > meta.term then
    fail('UNARMED the term has not begun here')
  end
end

local function read_remaining(key)
  local remaining = tonumber(redis.call('GET', key) or '0')
  if not remaining then
    fail('DIBSBAD ' .. key .. ' is not a number')
  end
  return remaining
end

local function read_leases(key)
  local leases = {}
  for i, text in ipairs(redis.call('LRANGE', key, 0, -1)) do
    local id, first, next_seq, stop = string.match(text, '^(%d+):(%d+):(%d+):(%d+)$')
    if not id then
      fail('DIBSBAD ' .. key .. ': a lease is not readable')
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

local function unreadable()
  fail('DIBSBAD what a user holds is not readable')
end

-- What a user holds.
local function read_held(text)
  local held, from = {}, 1
  while text and from <= #text do
    local _, stop, nth, at, seq = string.find(text, '^(%d+):%d+:(%d+):(%d+)', from + 16)
    if not stop then
      unreadable()
    end
    local own = {claim = string.sub(text, from, stop), seq = tonumber(seq), nth = tonumber(nth),
      at = tonumber(at), state = 'P', bound = 0}
    if stop < #text then
      local _, comma, state, bound = string.find(text, '^([PIR])(%d+),', stop + 1)
      if not comma then
        unreadable()
      end
      own.state, own.bound, stop = state, tonumber(bound), comma
    end
    held[#held + 1] = own
    from = stop + 1
  end
  return held
end

-- The same for an audit, which is to tell whose text it is that nobody can read.
local function read_held_of(key, user, text)
  local is_read, held = pcall(read_held, text)
  if not is_read then
    fail('DIBSBAD ' .. key .. ' of ' .. user .. ' is not readable')
  end
  return held
end

-- A claim as PENDING has it.
local function pending_member(user, nth)
  return nth == 1 and user or user .. '\n' .. nth
end

local function request_of(own)
  return string.sub(own.claim, 1, 16)
end

local function held_text(held)
  local parts = {}
  for i, own in ipairs(held) do
    parts[i] = own.claim .. own.state .. own.bound .. ','
  end
  return table.concat(parts)
end

-- Those of the claims, each with its user, that are not pending any more become I. Nearly all are
-- older than whatever is pending, and those need not be asked for one by one.
local function settle_states(key, claims)
  local asked, members, count, oldest = {}, {}, 0, nil
  for _, own in ipairs(claims) do
    if own.state == 'P' then
      oldest = oldest or tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) or math.huge
      if own.seq < oldest then
        own.state = 'I'
      else
        count = count + 1
        asked[count], members[count] = own, pending_member(own.user, own.nth)
      end
    end
  end
  for from = 1, #asked, 4000 do
    local to = math.min(from + 3999, #asked)
    for i, score in ipairs(redis.call('ZMSCORE', key, unpack(members, from, to))) do
      if not score then
        asked[from + i - 1].state = 'I'
      end
    end
  end
end

-- Rises with every change that servers must notice, and never comes back to a number it had, also
-- not when the keys were lost.
local function next_changes(meta)
  local time = redis.call('TIME')
  return whole(math.max(meta and meta.changes + 1 or 0, time[1] * 1000000 + time[2]))
end

-- Runs HSET and the like with the first `count` arguments, which may be more than Lua can unpack at
-- once, or none; an even number at a time, since they may be pairs.
local function call_many(command, key, arguments, count)
  for from = 1, count, 4000 do
    redis.call(command, key, unpack(arguments, from, math.min(from + 3999, count)))
  end
end

-- The values of any number of fields.
local function read_many(key, fields)
  local values = {}
  for from = 1, #fields, 4000 do
    local some = redis.call('HMGET', key, unpack(fields, from, math.min(from + 3999, #fields)))
    for i, value in ipairs(some) do
      values[from + i - 1] = value
    end
  end
  return values
end

-- --- claiming ---

local function is_keyed(request)
  return string.byte(request, 1) >= KEYED
end

local function is_closed(meta, now)
  return meta.closed > 0 or (meta.closes > 0 and now >= meta.closes)
end

-- What one wish gets, apart from winning. The order is the contract's.
local function refuse(meta, now, blocked, held_count)
  if blocked then
    return BLOCKED
  elseif is_closed(meta, now) then
    return CLOSED
  elseif meta.paused > 0 then
    return PAUSED
  elseif now < meta.opens then
    return NOT_OPEN .. whole(meta.opens)
  elseif held_count >= meta.limit then
    return LIMIT_REACHED
  end
end

-- The smallest place among the user's allowed coupons that is free.
local function free_nth(held)
  local taken = {}
  for _, own in ipairs(held) do
    taken[own.nth] = true
  end
  local nth = 1
  while taken[nth] do
    nth = nth + 1
  end
  return nth
end

-- Room for what a batch writes and answers, used again and again: growing tables is slow. Only the
-- first entries are of this batch.
local FIELDS, PENDING, ANSWERS = {}, {}, {}

-- The last three digits of a seq, as text: making text of a number is slow, too. Made once, since
-- nothing can be called while a library is loaded.
local DIGITS = {}

local function make_digits()
  for i = 0, 999 do
    DIGITS[i] = string.format('%03d', i)
  end
end

-- One batch: what it knows, what it has changed, and how much of the room it has used.
local function new_batch(keys, meta, now, requests)
  return {keys = keys, meta = meta, now = now, now_text = whole(now), requests = requests,
    remaining = read_remaining(keys[1]), leases = read_leases(keys[4]), lease_at = 0, win_count = 0,
    field_count = 0, answer_count = 0, texts = {}, keys_of = {}, key_names = {}, bound = {},
    shown = {}, traced = {}}
end

local function request_at(batch, i)
  return string.sub(batch.requests, 16 * i - 15, 16 * i)
end

-- Answers the next `count` wishes with that verdict.
local function answer(batch, verdict, count)
  batch.answer_count = batch.answer_count + 1
  ANSWERS[batch.answer_count] = count > 1 and verdict .. '+' .. count - 1 or verdict
end

-- Goes on to the next lease that has seqs left: that one, or nil.
local function next_lease(batch)
  local lease
  repeat
    batch.lease_at = batch.lease_at + 1
    lease = batch.leases[batch.lease_at]
  until not lease or lease.next < lease.stop
  batch.lease = lease
  if lease then
    lease.middle = ':' .. whole(lease.id) .. ':' .. batch.now_text .. ':'
  end
  return lease
end

-- The lease that the next win is from, or nil: there is none.
local function lease_for_win(batch)
  if batch.remaining <= 0 then
    return nil
  end
  local lease = batch.lease
  return lease and lease.next < lease.stop and lease or next_lease(batch)
end

local function no_stock(meta)
  return meta.unleased > 0 and LEASE_WANTED or SOLD_OUT
end

-- The trace of each wish that has one, by its number.
local function read_traces(text, count)
  local traces, size = {}, 4 + TRACE_SIZE
  if #text % size > 0 then
    fail('DIBSBAD the traces')
  end
  for from = 1, #text, size do
    local i = tonumber(string.match(string.sub(text, from, from + 3), '^%d%d%d%d$'))
    if not i or i < 1 or i > count then
      fail('DIBSBAD the traces')
    end
    traces[i] = string.sub(text, from + 4, from + size - 1)
  end
  return traces
end

local function trace_field(seq)
  return 'trace:' .. whole(seq)
end

-- The wishes from number i on, up to that one, have won the seqs from that one on: their traces are
-- kept while they are pending. The highest seq that ever had one tells when none is to be looked for.
local function keep_traces(batch, i, last, seq)
  local kept = batch.traced
  for number = i, last do
    if batch.traces[number] then
      kept[#kept + 1], kept[#kept + 2] = trace_field(seq + number - i), batch.traces[number]
      batch.traced_top = whole(seq + number - i)
    end
  end
end

-- Wins of wishes that nothing is known about, from number i on, until someone holds something or
-- the lease is sold: the number of the next wish. This is what a crowd's wins cost, so it does in
-- one loop with few texts what win() does for one.
local function win_many(batch, lease, args, found, i, count)
  local fields, pending, digits_of, sub = FIELDS, PENDING, DIGITS, string.sub
  local requests, middle, number = batch.requests, '1' .. lease.middle, lease.next
  local first, digits, thousands = i, number % 1000, whole(math.floor(number / 1000))
  local at, field_at = 2 * batch.win_count, batch.field_count
  local last = math.min(count, i + math.min(lease.stop - number, batch.remaining) - 1)
  while i <= last and not found[i] do
    local user, seq = args[i + 3], thousands .. digits_of[digits]
    pending[at + 1], pending[at + 2] = seq, user
    fields[field_at + 1] = user
    fields[field_at + 2] = sub(requests, 16 * i - 15, 16 * i) .. middle .. seq
    at, field_at, digits = at + 2, field_at + 2, digits + 1
    if digits == 1000 then
      digits, thousands = 0, whole((number + i - first + 1) / 1000)
    end
    i = i + 1
  end
  batch.win_count, batch.field_count = at / 2, field_at
  batch.remaining = batch.remaining - (i - first)
  lease.next = number + (i - first)
  if batch.traces then
    keep_traces(batch, first, i - 1, number)
  end
  answer(batch, WON .. whole(number) .. ':1', i - first)
  return i
end

-- Wish number i wins, when there is stock. `text` is what the user holds, with all states.
local function win(batch, i, user, nth, text)
  local lease = lease_for_win(batch)
  if not lease then
    return no_stock(batch.meta)
  end
  local seq, at = whole(lease.next), 2 * batch.win_count
  PENDING[at + 1], PENDING[at + 2] = seq, pending_member(user, nth)
  at = batch.field_count
  FIELDS[at + 1] = user
  FIELDS[at + 2] = text .. request_at(batch, i) .. nth .. lease.middle .. seq
  batch.texts[user] = FIELDS[at + 2]
  batch.win_count, batch.field_count = batch.win_count + 1, at + 2
  batch.remaining = batch.remaining - 1
  if batch.traces then
    keep_traces(batch, i, i, lease.next)
  end
  lease.next = lease.next + 1
  return WON .. seq .. ':' .. nth, seq
end

-- Answers the wish with a claim that is held, as soon as its state is known.
local function show(batch, user, own)
  own.i, own.user = batch.answer_count + 1, user
  batch.shown[#batch.shown + 1] = own
  return ''
end

-- The claim that this key is bound to. One that is not held any more was cancelled.
local function answer_key(batch, key, user, text)
  local seq, nth = string.match(key, '^(%d+):(%d+):')
  for _, own in ipairs(read_held(text)) do
    if own.seq == tonumber(seq) then
      return show(batch, user, own)
    end
  end
  return HELD .. seq .. ':' .. nth .. ':C'
end

local function note_key(batch, request, seq, nth, user)
  batch.keys_of[request] = seq .. ':' .. nth .. ':' .. user
  batch.key_names[#batch.key_names + 1] = request
end

-- A 200 for a claim that is held binds the key it came with.
local function bind_key(batch, user, request, held, own)
  own.bound = own.bound + 1
  local at, seq = batch.field_count, whole(own.seq)
  batch.texts[user] = held_text(held)
  FIELDS[at + 1], FIELDS[at + 2] = user, batch.texts[user]
  batch.field_count = at + 2
  note_key(batch, request, seq, own.nth, user)
  batch.bound[#batch.bound + 1] = seq
  batch.bound[#batch.bound + 1] = request .. ':' .. seq
end

-- Decides wish number i, whatever it is about. `closed` is what nobody who holds nothing can get
-- past.
local function decide(batch, i, user, text, flag, closed)
  local keyed, blocked = flag % 2 == 1, flag % 4 >= 2
  local request = request_at(batch, i)
  local key = keyed and batch.keys_of[request]
  if key then
    return answer_key(batch, key, user, text)
  end
  local held = read_held(text)
  local mine = batch.meta.limit == 1 and held[#held] or nil
  for _, own in ipairs(held) do
    if request_of(own) == request then
      mine = own
    end
  end
  if mine then
    if keyed and request_of(mine) ~= request then
      if mine.bound >= BOUND_MAX then
        return KEYS_FULL
      end
      bind_key(batch, user, request, held, mine)
    end
    return show(batch, user, mine)
  end
  local refused = blocked and BLOCKED or closed or refuse(batch.meta, batch.now, false, #held)
  if refused then
    return refused
  end
  local nth = free_nth(held)
  local answer, seq = win(batch, i, user, nth, held_text(held))
  if keyed and seq then
    note_key(batch, request, seq, nth, user)
  end
  return answer
end

-- The one claim that a user holds, where the limit is one and no key was ever bound to it: what
-- nearly everyone holds who asks again. nil: it is more than that, or not readable.
local function read_only_claim(text)
  local _, stop, at, seq = string.find(text, '^1:%d+:(%d+):(%d+)', 17)
  local state = stop and (stop == #text and 'P' or string.match(text, '^([PIR])0,$', stop + 1))
  return state and {seq = tonumber(seq), nth = 1, at = tonumber(at), state = state}
end

-- Decides all wishes in order: those that nothing is known about many at a time.
local function decide_all(batch, args, found, flags, count)
  local plain, closed = not string.find(flags, '[^0]'), refuse(batch.meta, batch.now, false, 0)
  local lost, i = closed or batch.remaining <= 0 and no_stock(batch.meta), 1
  while i <= count do
    local flag = plain and 0 or string.byte(flags, i) - 48
    local own = flag == 0 and found[i] and batch.meta.limit == 1 and read_only_claim(found[i])
    if own then
      answer(batch, show(batch, args[i + 3], own), 1)
      i = i + 1
    elseif flag > 0 or found[i] then
      local user = args[i + 3]
      answer(batch, decide(batch, i, user, batch.texts[user] or found[i], flag, closed), 1)
      i = i + 1
    elseif lost then
      local first = i
      repeat
        i = i + 1
      until i > count or found[i] or not plain
      answer(batch, lost, i - first)
    else
      local lease = lease_for_win(batch)
      if lease then
        i = win_many(batch, lease, args, found, i, plain and count or i)
      else
        lost = no_stock(batch.meta)
      end
    end
  end
end

-- The first write proves the type of its key; all other keys have been read.
local function write_batch(keys, batch)
  if batch.win_count > 0 then
    call_many('ZADD', keys[2], PENDING, 2 * batch.win_count)
    redis.call('SET', keys[1], whole(batch.remaining))
    for i = 1, math.min(batch.lease_at, #batch.leases) do
      local lease = batch.leases[i]
      if lease.middle then
        redis.call('LSET', keys[4], lease.at, lease_text(lease))
      end
    end
    if batch.remaining == 0 then
      redis.call('HSET', keys[5], 'sold_at', batch.now_text)
    end
  end
  -- Whoever is in it twice is written twice: the last counts.
  call_many('HSET', keys[3], FIELDS, batch.field_count)
  local named = {}
  for _, request in ipairs(batch.key_names) do
    named[#named + 1] = request
    named[#named + 1] = batch.keys_of[request]
  end
  call_many('HSET', keys[6], named, #named)
  call_many('ZADD', keys[7], batch.bound, #batch.bound)
  if batch.traced_top then
    call_many('HSET', keys[5], batch.traced, #batch.traced)
    redis.call('HSET', keys[5], 'traced', batch.traced_top)
  end
end

-- To which claims the keys of a batch are bound.
local function read_keys(batch, flags, count)
  local names = {}
  for i = 1, count do
    if string.byte(flags, i) % 2 == 1 then
      names[#names + 1] = request_at(batch, i)
    end
  end
  for i, text in ipairs(redis.call('HMGET', batch.keys[6], unpack(names))) do
    batch.keys_of[names[i]] = text
  end
  redis.call('ZCARD', batch.keys[7])
end

-- The answers to those who hold something. An issued coupon whose time has passed is E (expired).
-- What is still pending may have been written by another connection a moment ago, and replicas may
-- lack it. The WAIT that follows is about the last write of its own connection (since Redis 7.2), so
-- there is one.
local function show_held(batch)
  local meta, is_pending = batch.meta, false
  settle_states(batch.keys[2], batch.shown)
  for _, own in ipairs(batch.shown) do
    is_pending = is_pending or own.state == 'P'
    local ends = meta.expires
    if meta.days > 0 then
      local after_days = own.at + meta.days * DAY_MS
      ends = ends > 0 and math.min(ends, after_days) or after_days
    end
    local state = own.state == 'I' and ends > 0 and batch.now >= ends and 'E' or own.state
    ANSWERS[own.i] = HELD .. whole(own.seq) .. ':' .. own.nth .. ':' .. state
  end
  if is_pending then
    redis.call('HSET', batch.keys[5], 'shown_at', batch.now_text)
  end
end

-- ARGS: the batch's name, the request ids in one text, one digit for each wish, then the users. The
-- digit is the sum of 1: it has a key, 2: the user is blocked, 4: the user is in this batch more
-- than once, which all wishes of that user must say. Where wishes came with a trace one more text:
-- for each of those four digits, its number, and the trace.
-- Answers the name, the time, and one text with the verdicts in order, parted by blanks.
-- A plus and a number behind it: as many wishes after it get the same, a win the seqs after it.
local function claim(keys, args)
  local requests, flags = args[2] or '', args[3] or ''
  local count, traces = #flags, args[#flags + 4]
  if count < 1 or count > BATCH_MAX or #requests ~= 16 * count or
    #args ~= count + (traces and 4 or 3) or string.find(flags, '[^0-7]') then
    fail('DIBSBAD a batch of ' .. count)
  end
  local meta, now = need_meta(keys[5], RULES), now_ms()
  need_armed(keys[5], meta, now)
  local batch = new_batch(keys, meta, now, requests)
  batch.traces = traces and read_traces(traces, count)
  if string.find(flags, '[1357]') then
    read_keys(batch, flags, count)
  end
  if not DIGITS[0] then
    make_digits()
  end
  decide_all(batch, args, redis.call('HMGET', keys[3], unpack(args, 4, count + 3)), flags,
    count)
  write_batch(keys, batch)
  show_held(batch)
  return {args[1], batch.now_text, table.concat(ANSWERS, ' ', 1, batch.answer_count)}
end

-- --- what the ledger did with them ---

-- Reads the triples of acknowledge(): the runs that were issued, the users of those that came to
-- nothing, what became of each seq.
local function read_settled(args)
  local runs, users, state_of, count = {}, {}, {}, 0
  for i = 1, #args, 3 do
    check_whole(args, i, i)
    local first, state, last = tonumber(args[i]), args[i + 1], tonumber(args[i])
    if state == 'I' then
      check_whole(args, i + 2, i + 2)
      last = tonumber(args[i + 2])
      runs[#runs + 1] = {first = args[i], last = args[i + 2]}
    elseif (state == 'V' or state == 'C') and args[i + 2] then
      users[#users + 1] = args[i + 2]
    else
      fail('DIBSBAD argument ' .. i + 1 .. ' is neither I, V nor C')
    end
    count = count + math.max(last - first + 1, 1)
    if count > BATCH_MAX then
      fail('DIBSBAD a batch of ' .. count)
    end
    for seq = first, last do
      state_of[seq] = state
    end
  end
  if count == 0 then
    fail('DIBSBAD a batch of 0')
  end
  return runs, users, state_of
end

-- Those of the seqs that are pending: their members, in `removed`, and what becomes of each.
local function find_pending(key, state_of)
  local low, high, removed, settled, issued = math.huge, 0, {}, {}, 0
  for seq in pairs(state_of) do
    low, high = math.min(low, seq), math.max(high, seq)
  end
  local found = redis.call('ZRANGE', key, whole(low), whole(high), 'BYSCORE', 'WITHSCORES')
  for i = 1, #found, 2 do
    local seq = tonumber(found[i + 1])
    if state_of[seq] then
      removed[#removed + 1] = found[i]
      settled[seq] = state_of[seq]
      issued = issued + (state_of[seq] == 'I' and 1 or 0)
    end
  end
  return removed, settled, issued, whole(low), whole(high)
end

-- Takes away what came to nothing: the fields to set, the users to remove, and the claims.
local function void_claims(users, texts, settled)
  local fields, gone, void, seen = {}, {}, {}, {}
  for i, user in ipairs(users) do
    if texts[i] and not seen[user] then
      seen[user] = true
      local held, changed = read_held(texts[i]), false
      for at = #held, 1, -1 do
        local own = held[at]
        local state = own.state == 'P' and settled[own.seq]
        if state == 'V' or state == 'C' then
          changed = true
          table.remove(held, at)
        end
        if state == 'V' then
          void[#void + 1] = {request = request_of(own), seq = own.seq}
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
  return fields, gone, void
end

-- A claim that came to nothing binds no key: those of its keys that still name it, and those that
-- were bound later and wait for the ledger.
local function unbind(keys, void, settled, low, high)
  local requests, unbound, unbound_later = {}, {}, {}
  local bound = redis.call('ZRANGE', keys[7], low, high, 'BYSCORE', 'WITHSCORES')
  redis.call('HLEN', keys[6])
  for i = 1, #bound, 2 do
    local seq = tonumber(bound[i + 1])
    if settled[seq] == 'V' then
      unbound_later[#unbound_later + 1] = bound[i]
      void[#void + 1] = {request = string.sub(bound[i], 1, 16), seq = seq}
    end
  end
  for i, claim in ipairs(void) do
    requests[i] = claim.request
  end
  for i, text in ipairs(read_many(keys[6], requests)) do
    if text and tonumber(string.match(text, '^%d+')) == void[i].seq then
      unbound[#unbound + 1] = requests[i]
    end
  end
  return unbound, unbound_later
end

-- The units of claims that came to nothing are in the ledger again: until the row comes by, nobody
-- may be told that there are none.
local function return_units(key, meta, count)
  local now = now_ms()
  redis.call('HSET', key, 'unleased', whole(meta.unleased + count), 'changes',
    next_changes(meta), 'announced_at', whole(meta.unleased == 0 and now or meta.announced_at))
end

-- What is not one run of issued claims, piece by piece.
local function acknowledge_some(keys, meta, users, state_of)
  local removed, settled, issued, low, high = find_pending(keys[2], state_of)
  local texts = #users > 0 and redis.call('HMGET', keys[3], unpack(users)) or {}
  local fields, gone, void = void_claims(users, texts, settled)
  local unbound, unbound_later = unbind(keys, void, settled, low, high)
  call_many('ZREM', keys[2], removed, #removed)
  call_many('HSET', keys[3], fields, #fields)
  call_many('HDEL', keys[3], gone, #gone)
  call_many('HDEL', keys[6], unbound, #unbound)
  call_many('ZREM', keys[7], unbound_later, #unbound_later)
  if meta and #removed > issued then
    return_units(keys[5], meta, #removed - issued)
  end
  return #removed, issued
end

-- The ledger has these claims, and with them their traces.
local function drop_traces(key, traced, state_of)
  local fields = {}
  for seq in pairs(state_of) do
    if seq <= traced then
      fields[#fields + 1] = trace_field(seq)
    end
  end
  call_many('HDEL', key, fields, #fields)
end

-- ARGS: of what the ledger has settled either the first seq, I (issued), and the last seq of a run
-- without gaps, or the seq, V (void or merged) or C (cancelled since: its keys stay), and the user.
-- What is not pending any more is passed over, so a second call does nothing.
local function acknowledge(keys, args)
  local runs, users, state_of = read_settled(args)
  local meta, removed, issued = read_meta(keys[5]), nil, nil
  if #runs == 1 and #users == 0 then
    removed = redis.call('ZREMRANGEBYSCORE', keys[2], runs[1].first, runs[1].last)
    issued = removed
  else
    removed, issued = acknowledge_some(keys, meta, users, state_of)
  end
  if meta and issued > 0 then
    redis.call('HINCRBY', keys[5], 'issued', issued)
  end
  if meta and meta.traced > 0 then
    drop_traces(keys[5], meta.traced, state_of)
  end
  return removed
end

-- ARGS: request id, a colon and seq of bound keys that the ledger has.
local function acknowledge_bound(keys, args)
  if #args == 0 or #args > BATCH_MAX then
    fail('DIBSBAD a batch of ' .. #args)
  end
  return redis.call('ZREM', keys[7], unpack(args))
end

-- ARGS: the user, the seq, the new state: R (redeemed) or C (cancelled). The ledger has changed the
-- coupon, so it has the claim, though that may still be pending here. While the policy is unarmed
-- its users may be on their way from the ledger, as they were before this change; of one that was
-- let go nobody will come.
local function settle(keys, args)
  check_count(args, 3)
  check_whole(args, 2, 2)
  local user, seq, state = args[1], tonumber(args[2]), args[3]
  if state ~= 'R' and state ~= 'C' then
    fail('DIBSBAD argument 3 is neither R nor C')
  end
  local meta = read_meta(keys[5])
  if not meta then
    return 0
  end
  if redis.call('TTL', keys[5]) < 0 then
    need_armed(keys[5], meta, now_ms())
  end
  local held = read_held(redis.call('HGET', keys[3], user))
  redis.call('ZCARD', keys[2])
  for at, own in ipairs(held) do
    if own.seq == seq then
      if state == 'C' then
        table.remove(held, at)
      else
        own.state = state
      end
      local pending = redis.call('ZREMRANGEBYSCORE', keys[2], args[2], args[2])
      redis.call('HINCRBY', keys[5], 'issued', (state == 'C' and 0 or 1) - (1 - pending))
      redis.call('HDEL', keys[5], trace_field(seq))
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

-- ARGS: a row, in the order of ROW. An older version than the one held is passed over. Never
-- touches the stock in the gate. A policy that was not there is known from now on, and unarmed,
-- unless it is closed: it was let go, and does not come back. One that is suspended stays as
-- it is.
local function set_policy(keys, args)
  check_count(args, #ROW)
  check_whole(args, 1, #ROW - 1)
  local meta = read_meta(keys[5])
  local now = now_ms()
  local row = {}
  for i, name in ipairs(ROW) do
    row[name] = name == 'name' and args[i] or tonumber(args[i])
  end
  if meta and meta.version > row.version or not meta and is_closed(row, now) or
    is_suspended(keys[5]) then
    return 0
  end
  local before = redis.call('HMGET', keys[5], unpack(ROW))
  local fields = {}
  -- Units that were recalled for a lower total are away for good once it is lower.
  local giving = meta and math.max(meta.giving - math.max(meta.total - row.total, 0), 0) or 0
  if meta and giving ~= meta.giving then
    fields[1], fields[2] = 'giving', whole(giving)
  end
  row.unleased = math.max(row.unleased, meta and meta.coming or 0, giving)
  for i, name in ipairs(ROW) do
    local value = name == 'name' and row.name or whole(row[name])
    if before[i] ~= value then
      fields[#fields + 1] = name
      fields[#fields + 1] = value
    end
  end
  -- One that was let go, and is open again, stays.
  if redis.call('TTL', keys[5]) >= 0 and not is_closed(row, now) then
    for _, key in ipairs(keys) do
      redis.call('PERSIST', key)
    end
  end
  if #fields == 0 then
    return 0
  end
  -- New stock is announced once: what follows does not put its lending off again.
  if (not meta or meta.unleased == 0) and row.unleased > 0 then
    fields[#fields + 1] = 'announced_at'
    fields[#fields + 1] = whole(now)
  end
  redis.call('HSET', keys[5], 'changes', next_changes(meta), unpack(fields))
  return 1
end

-- For how long an empty policy that is armed may not be lent stock yet, because servers may not have
-- heard of it.
local function hold_back(keys, meta, remaining, now)
  local announced_ms = meta.unleased > 0 and now - meta.announced_at or 0
  if not is_armed(keys[5], meta, now) or remaining > 0 or announced_ms < 0 then
    return 0
  end
  return math.max(HOLD_BACK_MS - announced_ms, 0)
end

-- ARGS: how many units are about to leave the ledger for here, or 0: none are on their way; and 1 when
-- the leases here are those of the ledger, so that nothing is being given back but what was recalled
-- just now. Answers in how many milliseconds the units may be lent.
local function announce(keys, args)
  check_count(args, 2)
  check_whole(args, 1, 2)
  local meta, remaining, now = need_meta(keys[5]), read_remaining(keys[1]), now_ms()
  redis.call('HSET', keys[5], 'coming', args[1])
  if args[2] == '1' and now - meta.giving_at > GIVING_MS then
    redis.call('HSET', keys[5], 'giving', '0')
  end
  if meta.unleased == 0 and args[1] ~= '0' then
    meta.unleased, meta.announced_at = tonumber(args[1]), now
    redis.call('HSET', keys[5], 'unleased', args[1], 'announced_at', whole(now), 'changes',
      next_changes(meta))
  end
  return hold_back(keys, meta, remaining, now)
end

-- ARGS: id, first seq and count of a lease, a name for this call: the same name again changes
-- nothing, and the term. A lease that is not above every lease and seq seen is refused: a stalled
-- steward's second push. Leases that are sold make room.
local function lend(keys, args)
  check_count(args, 5)
  check_whole(args, 1, 3)
  check_whole(args, 5, 5)
  local id, first, count = tonumber(args[1]), tonumber(args[2]), tonumber(args[3])
  local meta = need_meta(keys[5])
  local remaining = read_remaining(keys[1])
  local leases = read_leases(keys[4])
  local now = now_ms()
  check_not_suspended(keys[5])
  if redis.call('HGET', keys[5], 'lent') == args[4] then
    return 1
  end
  need_term(meta, args[5])
  if id <= meta.lease_top or first <= meta.seq_top then
    fail('STALELEASE a later one has been seen')
  end
  if hold_back(keys, meta, remaining, now) > 0 then
    fail('TOOSOON servers have not heard of it yet')
  end
  local sold = 0
  while leases[sold + 1] and leases[sold + 1].next >= leases[sold + 1].stop do
    sold = sold + 1
  end
  redis.call('LTRIM', keys[4], sold, -1)
  redis.call('RPUSH', keys[4],
    lease_text({id = id, first = first, next = first, stop = first + count}))
  redis.call('SET', keys[1], whole(remaining + count))
  redis.call('HSET', keys[5], 'lease_top', whole(id), 'seq_top', whole(first + count - 1),
    'changes', next_changes(meta), 'lent', args[4], 'coming', '0', 'giving',
    whole(math.max(meta.giving - count, 0)))
  return 1
end

-- Takes up to `wanted` units off the end of the newest leases, in memory: how many are still
-- wanted, and the leases that shrank.
local function shrink_leases(leases, wanted)
  local shrunk = {}
  for at = #leases, 1, -1 do
    local lease = leases[at]
    local taken = math.min(wanted, lease.stop - lease.next)
    if taken > 0 and #shrunk < RECALL_LEASES_MAX then
      lease.stop = lease.stop - taken
      wanted = wanted - taken
      shrunk[#shrunk + 1] = lease
    end
  end
  return wanted, shrunk
end

-- ARGS: how many units (or 'all'), and a name for this recall: the same name again gets the same
-- answer and takes nothing. Answers "id:count" of each lease that shrank. The seqs were never given
-- out, and may come back in a later lease.
local function recall(keys, args)
  check_count(args, 2)
  if args[1] ~= 'all' then
    check_whole(args, 1, 1)
  end
  local meta = need_meta(keys[5])
  local remaining = read_remaining(keys[1])
  local leases = read_leases(keys[4])
  local last = redis.call('HMGET', keys[5], 'recall', 'recalled')
  check_not_suspended(keys[5])
  if last[1] == args[2] then
    return last[2]
  end
  local wanted = args[1] == 'all' and remaining or tonumber(args[1])
  if wanted > remaining then
    fail('TOOFEW ' .. whole(remaining) .. ' are left')
  end
  local left, shrunk = shrink_leases(leases, wanted)
  if left > 0 and #shrunk < RECALL_LEASES_MAX then
    fail('DIBSBAD the leases have fewer units than there are')
  elseif left > 0 and args[1] ~= 'all' then
    fail('SPREAD the stock is spread over too many leases')
  end
  local texts, now = {}, now_ms()
  for i, lease in ipairs(shrunk) do
    texts[i] = whole(lease.id) .. ':' .. whole(lease.stop - lease.first)
    redis.call('LSET', keys[4], lease.at, lease_text(lease))
  end
  remaining = remaining - (wanted - left)
  local answer = table.concat(texts, ' ')
  redis.call('SET', keys[1], whole(remaining))
  -- A policy that is emptied is over; one that gets a lower total may keep what was recalled.
  local giving = args[1] == 'all' and 0 or meta.giving + wanted
  redis.call('HSET', keys[5], 'recall', args[2], 'recalled', answer, 'changes',
    next_changes(meta), 'seq_top',
    whole(#shrunk > 0 and shrunk[#shrunk].stop - 1 or meta.seq_top), 'sold_at',
    whole(remaining == 0 and meta.sold_at == 0 and now or meta.sold_at), 'giving', whole(giving),
    'giving_at', whole(now),
    'unleased', whole(math.max(meta.unleased, giving)), 'announced_at',
    whole(meta.unleased == 0 and giving > 0 and now or meta.announced_at))
  return answer
end

-- --- arming ---

-- ARGS: the term, and the newest one before it. Everything written in an earlier term is refused from
-- here on. Answers 1 when the policy is what it was in the term before, though its time may be over:
-- then it goes on; 0: something may have been armed elsewhere since, or was lost here, and it is
-- disarmed.
local function take_over(keys, args)
  check_count(args, 2)
  check_whole(args, 1, 2)
  local meta, term = need_meta(keys[5]), tonumber(args[1])
  fence(meta, term)
  local entry = entry_of(keys[5], meta)
  if entry and (entry.term ~= meta.term or meta.term < tonumber(args[2])) then
    disarm(keys[5])
    entry = nil
  end
  if meta.term < term then
    redis.call('HSET', keys[5], 'term', args[1], 'changes', next_changes(meta))
  end
  if entry then
    entry.term = term
  end
  return entry and 1 or 0
end

-- ARGS: the last seq that was ever lent, a name for what is built from here, and the term. Disarms
-- and empties a policy that has nothing pending, before its users are restored; a lease from before
-- stays refused. Whoever knows of fewer seqs than were lent here was a steward once, and is late.
local function reset(keys, args)
  check_count(args, 3)
  check_whole(args, 1, 1)
  check_whole(args, 3, 3)
  local before = read_meta(keys[5])
  check_not_suspended(keys[5])
  fence(before, args[3])
  if before and before.seq_top > tonumber(args[1]) then
    fail('STALELEASE a later one has been seen')
  end
  disarm(keys[5])
  building[redis.call('HGET', keys[5], 'building') or ''] = nil
  if redis.call('ZCARD', keys[2]) + redis.call('ZCARD', keys[7]) > 0 then
    fail('PENDING the ledger has not got everything')
  end
  local now = now_ms()
  -- Of one that never had a lease nobody can remember anything.
  local values = {seq_top = args[1], term = args[3], changes = next_changes(before),
    reset_at = args[1] ~= '0' and whole(now) or '0'}
  local fields = {}
  for _, name in ipairs(META) do
    fields[#fields + 1] = name
    fields[#fields + 1] = values[name] or '0'
  end
  redis.call('DEL', unpack(keys))
  redis.call('HSET', keys[5], 'building', args[2], unpack(fields))
  building[args[2]] = keys[5]
  return 1
end

-- Checks coupons of the ledger: user, seq, nth, state (I, R, or C: only its key answers),
-- requested_at and request id of each. Returns their users, in order.
local function read_coupons(args)
  local users = {}
  for i = 1, #args, 6 do
    check_whole(args, i + 1, i + 2)
    check_whole(args, i + 4, i + 4)
    if not string.find(args[i + 3], '^[IRC]$') or
      #(args[i + 5] or '') ~= 16 then
      fail('DIBSBAD a coupon is not readable')
    end
    users[#users + 1] = args[i]
  end
  if #users == 0 or #users > BATCH_MAX then
    fail('DIBSBAD a batch of ' .. #users)
  end
  return users
end

-- Puts a coupon among those a user holds, in the order of seqs. False: it is there already.
local function hold(held, coupon)
  local at = #held + 1
  while at > 1 and held[at - 1].seq >= coupon.seq do
    at = at - 1
  end
  if held[at] and held[at].seq == coupon.seq then
    return false
  end
  table.insert(held, at, coupon)
  return true
end

-- The keys that were bound later to what those hold, and that wait for the ledger.
local function waiting_keys(key, held)
  local requests = {}
  redis.call('ZCARD', key)
  for _, own in ipairs(held) do
    for _, member in ipairs(redis.call('ZRANGE', key, whole(own.seq), whole(own.seq), 'BYSCORE')) do
      requests[#requests + 1] = string.sub(member, 1, 16)
    end
  end
  return requests
end

-- ARGS: the user, their new name, which is nobody's, and request ids of their keys. The ledger has
-- the new name. While the policy is unarmed settle() says why it waits.
local function rename(keys, args)
  if #args < 2 or #args > BATCH_MAX then
    fail('DIBSBAD ' .. #args .. ' arguments')
  end
  local from, to, meta = args[1], args[2], read_meta(keys[5])
  if not meta then
    return 0
  end
  if redis.call('TTL', keys[5]) < 0 then
    need_armed(keys[5], meta, now_ms())
  end
  local texts = redis.call('HMGET', keys[3], from, to)
  local held, others = read_held(texts[1]), read_held(texts[2])
  for _, own in ipairs(held) do
    own.user = from
  end
  redis.call('ZCARD', keys[2])
  settle_states(keys[2], held)
  for _, own in ipairs(held) do
    if own.state == 'P' then
      fail('PENDING the ledger has not got everything')
    end
    hold(others, own)
  end
  local requests, named = waiting_keys(keys[7], held), {}
  for i = 3, #args do
    requests[#requests + 1] = args[i]
  end
  redis.call('HLEN', keys[6])
  for i, text in ipairs(read_many(keys[6], requests)) do
    local place, user = string.match(text or '', '^(%d+:%d+:)(.+)$')
    if user == from then
      named[#named + 1] = requests[i]
      named[#named + 1] = place .. to
    end
  end
  if #held > 0 then
    redis.call('HSET', keys[3], to, held_text(others))
    redis.call('HDEL', keys[3], from)
  end
  call_many('HSET', keys[6], named, #named)
  return #held
end

-- The claim that a user holds is in the ledger in another place among theirs, because this one was
-- taken there. It may still be pending here under the old one. Answers whether it has changed, and
-- its member of PENDING.
local function move(held, user, coupon)
  for _, own in ipairs(held) do
    if own.seq == coupon.seq and own.nth ~= coupon.nth then
      local member = own.state == 'P' and pending_member(user, own.nth)
      own.claim = string.sub(own.claim, 1, 16) .. whole(coupon.nth) ..
        string.match(own.claim, '^%d+(.*)$', 17)
      own.nth = coupon.nth
      own.state = own.state == 'P' and 'I' or own.state
      return true, member
    end
  end
end

-- Takes those of the members out of PENDING that have that seq: how many.
local function drop_moved(keys, moved)
  local dropped = 0
  for _, item in ipairs(moved) do
    if tonumber(redis.call('ZSCORE', keys[2], item.member) or '0') == item.seq then
      dropped = dropped + redis.call('ZREM', keys[2], item.member)
      redis.call('HDEL', keys[5], trace_field(item.seq))
    end
  end
  return dropped
end

-- Keys that are bound to a claim besides its own count as such, unless they were bound to it already.
-- Each has its request, seq and user; `held_of` has what these hold.
local function count_bound(key, bound, held_of, touched)
  local requests = {}
  for i, binding in ipairs(bound) do
    requests[i] = binding.request
  end
  for i, known in ipairs(read_many(key, requests)) do
    local binding = bound[i]
    local is_new = not known or tonumber(string.match(known, '^%d+')) ~= binding.seq
    for _, own in ipairs(held_of[binding.user]) do
      if is_new and own.seq == binding.seq and request_of(own) ~= binding.request then
        own.bound = own.bound + 1
        touched[binding.user] = true
      end
    end
  end
end

-- Writes what those users hold.
local function write_held(key, held_of, touched)
  local fields = {}
  for user in pairs(touched) do
    fields[#fields + 1] = user
    fields[#fields + 1] = held_text(held_of[user])
  end
  call_many('HSET', key, fields, #fields)
end

-- Gives coupons of the ledger to their users: how many were not there or only pending, and when the
-- latest was won.
local function hold_coupons(keys, args)
  local users = read_coupons(args)
  local held_of, bound, named, moved, added, latest = {}, {}, {}, {}, 0, 0
  redis.call('ZCARD', keys[2])
  redis.call('HLEN', keys[6])
  for i, text in ipairs(redis.call('HMGET', keys[3], unpack(users))) do
    held_of[users[i]] = held_of[users[i]] or read_held(text)
  end
  local touched = {}
  for i = 1, #args, 6 do
    local user, state, request = args[i], args[i + 3], args[i + 5]
    local coupon = {seq = tonumber(args[i + 1]), nth = tonumber(args[i + 2]), state = state,
      bound = 0, claim = request .. args[i + 2] .. ':0:' .. args[i + 4] .. ':' .. args[i + 1]}
    if state ~= 'C' and hold(held_of[user], coupon) then
      added = added + 1
      touched[user] = true
    elseif state ~= 'C' then
      local has_moved, member = move(held_of[user], user, coupon)
      touched[user] = touched[user] or has_moved
      if member then
        moved[#moved + 1] = {member = member, seq = coupon.seq}
      end
    end
    if is_keyed(request) then
      named[#named + 1] = request
      named[#named + 1] = args[i + 1] .. ':' .. args[i + 2] .. ':' .. user
      bound[#bound + 1] = {request = request, seq = coupon.seq, user = user}
    end
    latest = math.max(latest, tonumber(args[i + 4]))
  end
  count_bound(keys[6], bound, held_of, touched)
  write_held(keys[3], held_of, touched)
  call_many('HSET', keys[6], named, #named)
  return added + drop_moved(keys, moved), latest
end

-- The last argument of what is restored is the term. Fails unless the policy is being built in it.
local function need_building(keys, args)
  local meta = need_meta(keys[5])
  check_whole(args, #args, #args)
  need_term(meta, table.remove(args))
  if entry_of(keys[5], meta) then
    fail('ARMED its users are its own')
  end
  return meta
end

-- ARGS: coupons of the ledger, as read_coupons() has them, and the term.
local function restore(keys, args)
  local meta = need_building(keys, args)
  local added, latest = hold_coupons(keys, args)
  redis.call('HSET', keys[5], 'sold_at', whole(math.max(meta.sold_at, latest)))
  return added
end

-- ARGS: coupons that the ledger gave while the gate was away, as read_coupons() has them, or none.
-- Takes no stock; what is here already is passed over.
local function enter(keys, args)
  local meta = need_meta(keys[5])
  need_armed(keys[5], meta, now_ms())
  local added = #args > 0 and hold_coupons(keys, args) or 0
  if added > 0 then
    redis.call('HSET', keys[5], 'issued', whole(meta.issued + added), 'changes',
      next_changes(meta))
  end
  return added
end

-- ARGS: request id and "seq:nth:user" of keys that are bound besides a claim's own, or whose
-- claim is not active any more; and the term.
local function restore_keys(keys, args)
  need_building(keys, args)
  local bound, users, held_of, touched = {}, {}, {}, {}
  for i = 1, #args, 2 do
    local seq, user = string.match(args[i + 1] or '', '^(%d+):%d+:(.+)$')
    if #args[i] ~= 16 or not seq then
      fail('DIBSBAD a key is not readable')
    end
    users[#users + 1] = user
    bound[#bound + 1] = {request = args[i], seq = tonumber(seq), user = user}
  end
  if #args == 0 or #args > 2 * BATCH_MAX then
    fail('DIBSBAD a batch of ' .. #args / 2)
  end
  for i, text in ipairs(redis.call('HMGET', keys[3], unpack(users))) do
    held_of[users[i]] = held_of[users[i]] or read_held(text)
  end
  count_bound(keys[6], bound, held_of, touched)
  write_held(keys[3], held_of, touched)
  call_many('HSET', keys[6], args, #args)
  return #args / 2
end

-- Times that were told by moment() of another library, one on another server or of before a restart,
-- are no times of this one.
local function need_process(name)
  if not process or name ~= process then
    fail('UNARMED that was the time of another server')
  end
end

-- ARGS: a name for this library, should it have none yet, and the number of a database. Answers its
-- name, the time, and when what is armed in that database was last renewed.
local function moment(_, args)
  check_count(args, 2)
  process = process or args[1]
  return {process, whole(now_ms()), whole(renewed_at[args[2]] or 0)}
end

-- ARGS: the token, how many active coupons the ledger has, the name that the reset was given, or ''
-- for a policy that was never reset; the term; name and time of a moment() before the ledger
-- confirmed that this term is its newest, and for how long from then on the policy is armed. What
-- was built must still be here: Redis may have lost it since, wholly or in part, and another steward
-- may have begun anew.
local function arm(keys, args)
  check_count(args, 7)
  check_whole(args, 2, 2)
  check_whole(args, 4, 4)
  check_whole(args, 6, 7)
  local meta, now = need_meta(keys[5]), now_ms()
  local from, upto = tonumber(args[6]), tonumber(args[6]) + tonumber(args[7])
  if meta.limit == 0 then
    fail('NOPOLICY its row has not come since it was reset')
  end
  need_term(meta, args[4])
  need_process(args[5])
  if from > now or now >= upto then
    fail('UNARMED its time is over')
  end
  if meta.armed == args[1] and entry_of(keys[5], meta) then
    return 1 -- a call whose answer was lost
  end
  check_not_suspended(keys[5])
  local built = redis.call('HGET', keys[5], 'building') or ''
  if built ~= args[3] or (built ~= '' and building[built] ~= keys[5]) then
    fail('UNARMED it was not built by this steward')
  end
  local reset_ms = now - meta.reset_at
  if reset_ms >= 0 and reset_ms < HOLD_BACK_MS then
    fail('TOOSOON servers may remember what was before')
  end
  disarm(keys[5])
  redis.call('HSET', keys[5], 'issued', args[2], 'changes', next_changes(meta), 'armed',
    args[1])
  redis.call('HDEL', keys[5], 'building')
  building[built] = nil
  armed[entry_name(keys[5], args[1])] = {token = args[1], term = meta.term, from = from,
    upto = upto}
  return 1
end

-- ARGS: name and time of a moment(), for how long from then on; whether the ledger confirmed the
-- terms after that moment; the number of the database; then META and term of policies. Touches no
-- key: what is armed in that term here stays so, or is so again, and nothing else is armed by it.
local function renew(_, args)
  check_whole(args, 2, 5)
  need_process(args[1])
  local from, length, now, count = tonumber(args[2]), tonumber(args[3]), now_ms(), 0
  local upto = from + length
  for i = 7, #args, 2 do
    check_whole(args, i, i)
  end
  if from > now or now >= upto then
    return 0
  end
  for i = 6, #args, 2 do
    local entry = armed[args[5] .. args[i]]
    if entry and entry.term == tonumber(args[i + 1]) and
      (upto > entry.upto or entry.upto > now + length) then
      entry.from, entry.upto = from, upto
      count = count + 1
    end
  end
  if args[4] == '1' then
    renewed_at[args[5]] = from
  end
  return count
end

-- ARGS: seconds after which a policy that is closed and has nothing pending is forgotten. Answers 1
-- when it will be, or is; a second call puts nothing off.
local function retire(keys, args)
  check_count(args, 1)
  check_whole(args, 1, 1)
  local meta = read_meta(keys[5])
  if not meta or redis.call('TTL', keys[5]) >= 0 then
    return 1
  elseif not is_closed(meta, now_ms()) or
    redis.call('ZCARD', keys[2]) + redis.call('ZCARD', keys[7]) > 0 then
    return 0
  end
  for _, key in ipairs(keys) do
    redis.call('EXPIRE', key, args[1])
  end
  return 1
end

-- --- publishing ---

local function read_mark(key)
  local mark = tonumber(redis.call('HGET', key, 'published') or '0')
  if not mark then
    fail('DIBSBAD ' .. key .. ': the mark is not a number')
  end
  return mark
end

-- ARGS: a token. Whoever gave the last one publishes what is pending, and no other moves the mark.
-- Answers up to which seq all of it was published.
local function publish(keys, args)
  check_count(args, 1)
  need_meta(keys[5])
  local mark = read_mark(keys[5])
  redis.call('HSET', keys[5], 'publisher', args[1])
  return whole(mark)
end

-- ARGS: the token, and up to which seq all that was pending is published for sure. Never goes back.
local function published(keys, args)
  check_count(args, 2)
  check_whole(args, 2, 2)
  need_meta(keys[5])
  local mark = read_mark(keys[5])
  if redis.call('HGET', keys[5], 'publisher') ~= args[1] then
    fail('FENCED another one publishes')
  end
  if tonumber(args[2]) > mark then
    redis.call('HSET', keys[5], 'published', args[2])
  end
  return 1
end

-- --- looking ---

local function numbers(keys, meta)
  local now = now_ms()
  return {arming(keys[5], meta, now), whole(read_remaining(keys[1])),
    redis.call('ZCARD', keys[2]), whole(meta.issued), whole(meta.unleased), whole(meta.total),
    whole(meta.version), whole(meta.changes), whole(meta.sold_at), whole(meta.opens),
    whole(meta.closes), whole(meta.paused), whole(meta.closed), whole(now), whole(meta.term),
    entry_of(keys[5], meta) and 1 or 0}
end

-- Answers its arming, all the numbers of a policy, the time, its term, and whether nothing but time
-- may keep it from being armed.
local function count(keys)
  return numbers(keys, need_meta(keys[5]))
end

-- ARGS: the user. Answers what they hold, and how many pending claims are before each.
local function find(keys, args)
  check_count(args, 1)
  need_armed(keys[5], need_meta(keys[5]), now_ms())
  local found, held = {}, read_held(redis.call('HGET', keys[3], args[1]))
  for _, own in ipairs(held) do
    own.user = args[1]
  end
  settle_states(keys[2], held)
  for i, own in ipairs(held) do
    local ahead = 0
    if own.state == 'P' then
      ahead = redis.call('ZCOUNT', keys[2], '-inf', '(' .. whole(own.seq))
    end
    found[i] = whole(own.seq) .. ':' .. own.nth .. ':' .. own.state .. ':' .. whole(ahead) .. ':' ..
      whole(own.at)
  end
  return found
end

-- ARGS: seq and user of each claim. Answers one letter for each: P while it is pending, I or R once
-- the user holds it for good, V when it came to nothing. Seq 0 stands for all claims: P while any is
-- pending, else V.
local function settled(keys, args)
  local users, letters, claims = {}, {}, {}
  for i = 2, #args, 2 do
    users[#users + 1] = args[i]
  end
  if #users == 0 or #users > BATCH_MAX then
    fail('DIBSBAD a batch of ' .. #users)
  end
  local any = redis.call('ZCARD', keys[2]) > 0
  for i, text in ipairs(redis.call('HMGET', keys[3], unpack(users))) do
    letters[i] = any and args[2 * i - 1] == '0' and 'P' or 'V'
    for _, own in ipairs(read_held(text)) do
      if own.seq == tonumber(args[2 * i - 1]) then
        own.i, own.user = i, users[i]
        claims[#claims + 1] = own
      end
    end
  end
  settle_states(keys[2], claims)
  for _, own in ipairs(claims) do
    letters[own.i] = own.state
  end
  return table.concat(letters)
end

-- The traces of the pending claims with those members, false for one that has none.
local function pending_traces(keys, members)
  local fields = {}
  for i, score in ipairs(redis.call('ZMSCORE', keys[2], unpack(members))) do
    fields[i] = trace_field(tonumber(score))
  end
  return redis.call('HMGET', keys[5], unpack(fields))
end

-- The lease that the next win is from; 0: none.
local function selling(key)
  for _, lease in ipairs(read_leases(key)) do
    if lease.next < lease.stop then
      return lease.id
    end
  end
  return 0
end

-- ARGS: after which seq, and how many. Answers the numbers, and behind them the lease that is being
-- sold (the time: not known, or let go), then pending claims in seq order, each as PENDING has it
-- and its seq, then what their users hold, then bound keys, and their traces where any may have one.
local function pending(keys, args)
  check_count(args, 2)
  check_whole(args, 1, 2)
  local meta, members, users, texts = read_meta(keys[5]), {}, {}, {}
  if meta and is_let_go(keys[5], meta, now_ms()) then
    meta = nil
  end
  local counted = meta and numbers(keys, meta)
  if counted then
    counted[#counted + 1] = whole(selling(keys[4]))
  end
  local found = redis.call('ZRANGE', keys[2], '(' .. args[1], '+inf', 'BYSCORE', 'LIMIT', 0,
    args[2], 'WITHSCORES')
  for i = 1, #found, 2 do
    local member, at = found[i], (i + 1) / 2
    local feed = string.find(member, '\n', 1, true)
    members[at], users[at] = member, feed and string.sub(member, 1, feed - 1) or member
  end
  if #users > BATCH_MAX then
    fail('DIBSBAD a batch of ' .. #users)
  elseif #users > 0 then
    texts = redis.call('HMGET', keys[3], unpack(users))
  end
  local traced = meta and #users > 0 and meta.traced > tonumber(args[1])
  return {counted or whole(now_ms()), found, texts,
    redis.call('ZRANGE', keys[7], '-inf', '+inf', 'BYSCORE', 'LIMIT', 0, args[2]),
    traced and pending_traces(keys, members) or nil}
end

-- ARGS: a cursor, '0' to begin with, and about how many users. Answers the next cursor, '0' at the
-- end, then users and what each holds, by turns, with the states that hold now.
local function visit(keys, args)
  check_count(args, 2)
  check_whole(args, 1, 2)
  redis.call('ZCARD', keys[2])
  local page = redis.call('HSCAN', keys[3], args[1], 'COUNT', args[2])
  local people, all, claims = page[2], {}, {}
  for i = 1, #people, 2 do
    all[i] = read_held_of(keys[3], people[i], people[i + 1])
    for _, own in ipairs(all[i]) do
      own.user = people[i]
      claims[#claims + 1] = own
    end
  end
  settle_states(keys[2], claims)
  for i, held in pairs(all) do
    people[i + 1] = held_text(held)
  end
  return {page[1], people}
end

-- Answers the row, the highest lease and seq seen, and the leases.
local function describe(keys)
  local meta = need_meta(keys[5])
  return {redis.call('HMGET', keys[5], unpack(ROW)), whole(meta.lease_top), whole(meta.seq_top),
    redis.call('LRANGE', keys[4], 0, -1)}
end

-- --- auditing ---

local KINDS = {'string', 'zset', 'hash', 'list', 'hash', 'hash', 'zset'}

-- Answers how the policy stands in one step: its arming, its numbers, the highest seq and
-- lease seen, the mark of what is published, and the leases; nil: it is not known. Stock that is not
-- a number is told as -1.
local function inspect(keys)
  for i, key in ipairs(keys) do
    local kind = redis.call('TYPE', key).ok
    if kind ~= 'none' and kind ~= KINDS[i] then
      fail('DIBSBAD ' .. key .. ' is a ' .. kind .. ' instead of a ' .. KINDS[i])
    end
  end
  local meta = read_meta(keys[5])
  if not meta then
    return false
  end
  local remaining = tonumber(redis.call('GET', keys[1]) or '0') or -1
  return {arming(keys[5], meta, now_ms()), whole(remaining), redis.call('ZCARD', keys[2]),
    whole(meta.issued), whole(meta.unleased), whole(meta.version), whole(meta.changes),
    whole(meta.seq_top), whole(meta.lease_top), whole(read_mark(keys[5])),
    redis.call('LRANGE', keys[4], 0, -1)}
end

-- A member of PENDING: its user and nth.
local function read_member(member)
  local user, nth = string.match(member, '^([^\n]*)\n(%d+)$')
  return user or member, tonumber(nth or '1')
end

local function find_held(held, nth, seq)
  for at, own in ipairs(held) do
    if own.nth == nth and own.seq == seq then
      return at
    end
  end
end

-- ARGS: after which seq, and how many are looked at. Answers the last of these, '0' at the end, then
-- member and seq of what is pending and its user does not hold, by turns.
local function strays(keys, args)
  check_count(args, 2)
  check_whole(args, 1, 2)
  local found, users, texts = {'0'}, {}, {}
  local members = redis.call('ZRANGE', keys[2], '(' .. args[1], '+inf', 'BYSCORE', 'LIMIT', 0,
    args[2], 'WITHSCORES')
  for i = 1, #members, 2 do
    users[#users + 1] = read_member(members[i])
  end
  if #users > BATCH_MAX then
    fail('DIBSBAD a batch of ' .. #users)
  elseif #users > 0 then
    texts = redis.call('HMGET', keys[3], unpack(users))
  end
  for i = 1, #members, 2 do
    local user, nth = read_member(members[i])
    local held = read_held_of(keys[3], user, texts[(i + 1) / 2])
    if not find_held(held, nth, tonumber(members[i + 1])) then
      found[#found + 1] = members[i]
      found[#found + 1] = members[i + 1]
    end
  end
  if #users == tonumber(args[2]) then
    found[1] = members[#members]
  end
  return found
end

-- What repair() does with one claim. Each does nothing where there is nothing to do.
local REPAIRS = {
  -- A claim that is held goes to the ledger once more.
  P = function(keys, held, item)
    return find_held(held, item.nth, item.seq) and
      redis.call('ZADD', keys[2], 'NX', item.score, item.member) or 0
  end,
  -- A pending claim is held again.
  H = function(keys, held, item)
    if tonumber(redis.call('ZSCORE', keys[2], item.member) or '0') ~= item.seq or
      not hold(held, {seq = item.seq, nth = item.nth, state = 'P', bound = 0,
        claim = item.claim}) then
      return 0
    end
    redis.call('HSET', keys[3], item.user, held_text(held))
    return 1
  end,
  -- A claim that no lease ever gave goes, wherever it is.
  R = function(keys, held, item)
    local at, changed = find_held(held, item.nth, item.seq), 0
    if at then
      table.remove(held, at)
      changed = 1
      if #held > 0 then
        redis.call('HSET', keys[3], item.user, held_text(held))
      else
        redis.call('HDEL', keys[3], item.user)
      end
    end
    if tonumber(redis.call('ZSCORE', keys[2], item.member) or '0') == item.seq then
      changed = 1
      redis.call('ZREM', keys[2], item.member)
    end
    return changed
  end,
}

-- ARGS: of each claim what is to be done (P, H or R), the user, seq, nth, lease, requested_at and
-- request id. Answers how many were changed; a second call changes nothing.
local function repair(keys, args)
  local meta, items, changed = need_meta(keys[5]), {}, 0
  for i = 1, #args, 7 do
    check_whole(args, i + 2, i + 5)
    if not REPAIRS[args[i]] or #(args[i + 6] or '') ~= 16 then
      fail('DIBSBAD what is to be repaired is not readable')
    end
    local nth = tonumber(args[i + 3])
    items[#items + 1] = {repair = REPAIRS[args[i]], user = args[i + 1], seq = tonumber(args[i + 2]),
      score = args[i + 2], nth = nth, member = pending_member(args[i + 1], nth),
      claim = args[i + 6] .. args[i + 3] .. ':' .. args[i + 4] .. ':' .. args[i + 5] .. ':' ..
      args[i + 2]}
    read_held(redis.call('HGET', keys[3], args[i + 1]))
  end
  if #items > BATCH_MAX then
    fail('DIBSBAD a batch of ' .. #items)
  end
  redis.call('ZCARD', keys[2])
  for _, item in ipairs(items) do
    changed = changed + item.repair(keys, read_held(redis.call('HGET', keys[3], item.user)), item)
  end
  if changed > 0 then
    redis.call('HSET', keys[5], 'changes', next_changes(meta))
  end
  return changed
end

-- From here on nobody is answered, until the steward has built the policy anew.
local function disarm_policy(keys)
  local meta = need_meta(keys[5])
  disarm(keys[5])
  redis.call('HSET', keys[5], 'changes', next_changes(meta))
  return 1
end

-- The ledger has lost this policy, or has an older copy of it.
local function suspend(keys)
  local meta = need_meta(keys[5])
  if is_suspended(keys[5]) then
    return 0
  end
  disarm(keys[5])
  for _, key in ipairs(keys) do
    redis.call('PERSIST', key)
  end
  redis.call('HSET', keys[5], 'suspended', whole(now_ms()), 'changes', next_changes(meta))
  return 1
end

-- The ledger has all of a suspended policy now, or somebody has let it go: nothing of it is kept here.
local function forget(keys)
  if read_meta(keys[5]) and not is_suspended(keys[5]) then
    fail('ARMED it is not suspended')
  end
  return redis.call('DEL', unpack(keys))
end

local function version()
  return VERSION
end

-- Answers whether Redis takes what needs memory, by being refused when it does not.
local function room()
  return 1
end

redis.register_function('dibs_claim', claim)
redis.register_function('dibs_restore', restore)
redis.register_function('dibs_restore_keys', restore_keys)
redis.register_function('dibs_enter', enter)
redis.register_function('dibs_room', room)

-- What frees memory, or needs next to none, is done by a Redis that is full, too: else it would
-- never hear what the ledger has, and stay full.
local function register_frugal(name, callback)
  redis.register_function{function_name = name, callback = callback, flags = {'allow-oom'}}
end
register_frugal('dibs_acknowledge', acknowledge)
register_frugal('dibs_acknowledge_bound', acknowledge_bound)
register_frugal('dibs_settle', settle)
register_frugal('dibs_rename', rename)
register_frugal('dibs_set_policy', set_policy)
register_frugal('dibs_announce', announce)
register_frugal('dibs_lend', lend)
register_frugal('dibs_recall', recall)
register_frugal('dibs_take_over', take_over)
register_frugal('dibs_reset', reset)
register_frugal('dibs_arm', arm)
register_frugal('dibs_retire', retire)
register_frugal('dibs_publish', publish)
register_frugal('dibs_published', published)
register_frugal('dibs_repair', repair)
register_frugal('dibs_disarm', disarm_policy)
register_frugal('dibs_suspend', suspend)
register_frugal('dibs_forget', forget)
register_frugal('dibs_renew', renew)

local function register_reader(name, callback)
  redis.register_function{function_name = name, callback = callback, flags = {'no-writes'}}
end
register_reader('dibs_moment', moment)
register_reader('dibs_count', count)
register_reader('dibs_find', find)
register_reader('dibs_settled', settled)
register_reader('dibs_pending', pending)
register_reader('dibs_visit', visit)
register_reader('dibs_describe', describe)
register_reader('dibs_inspect', inspect)
register_reader('dibs_strays', strays)
register_reader('dibs_version', version)
