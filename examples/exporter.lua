-- For prometheus-redis-exporter, which does not know INFO bf: with the option
-- -script /path/to/exporter.lua it exports the fields as redis_script_values{key="bf_items"} and
-- so on.
local result = {}
for name, value in redis.call("INFO", "bf"):gmatch("(bf_[%w_]+):(%d+)") do
    result[#result + 1] = name
    result[#result + 1] = value
end
return result
