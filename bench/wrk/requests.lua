-- wrk script of bench/run. Its one argument is a file of requests, each from
-- its request line to its empty line; every thread sends them over and over in
-- their order. Without an argument wrk sends its own request. At the end the
-- summary is printed as one line of JSON behind a mark.

local requests, last, count = {}, 0, 0

function init(args)
  if #args == 0 then
    return
  end
  local file = assert(io.open(args[1], "rb"))
  local text = file:read("*a")
  file:close()
  for head in text:gmatch("(.-\r\n\r\n)") do
    count = count + 1
    requests[count] = head
  end
  assert(count > 0, "no request in " .. args[1])
  function request()
    last = last % count + 1
    return requests[last]
  end
end

function done(summary, latency, _)
  local e = summary.errors
  io.write(string.format(
    '@bench {"requests":%d,"bytes":%d,"duration_us":%d,' ..
    '"connect":%d,"read":%d,"write":%d,"timeout":%d,"status":%d,' ..
    '"p50_us":%d,"p99_us":%d,"max_us":%d}\n',
    summary.requests, summary.bytes, summary.duration,
    e.connect, e.read, e.write, e.timeout, e.status,
    latency:percentile(50), latency:percentile(99), latency.max))
end
