-- What many shops run today, one call per request: the peer that the gate in Redis is measured with.
-- It records what dibs records: who has won which seq, with the request id by which a retry is
-- known and the time it came, and who is pending.
-- KEYS: stock, users, pending, sequence. ARGS: the user, the request id, the time.
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then
  return 'ALREADY'
end
if tonumber(redis.call('GET', KEYS[1]) or '0') <= 0 then
  return 'SOLD_OUT'
end
redis.call('DECR', KEYS[1])
local seq = redis.call('INCR', KEYS[4])
redis.call('HSET', KEYS[2], ARGV[1], seq .. ':' .. ARGV[2] .. ':' .. ARGV[3])
redis.call('ZADD', KEYS[3], seq, ARGV[1])
return seq
