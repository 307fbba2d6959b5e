-- What wrk asks for: a claim by another user each time.
local counter = 0

function request()
    counter = counter + 1
    return wrk.format("POST", nil, {["Content-Type"] = "application/json"},
                      string.format('{"user":"wrk-%d"}', counter))
end
