package lane

import (
	"net/http"
	"time"
	"unsafe"

	"millrace/internal/observe/accesslog"
)

// answerRecord is what is counted and logged of an answer.
type answerRecord struct {
	response *response
	req      *request
	bytes    []byte // the request, to which the spans of req refer; nil: it is not logged
	status   int
	sent     int64 // bytes of the body
	began    time.Time
	proto    string
	id       string // the request's; set when it is logged
}

// record counts an answer and logs it.
func (c *Conn) record(log *accesslog.Log, a answerRecord) {
	took := a.count(c.shard)
	if a.bytes == nil || a.response.noLog || !log.Wants(a.began, a.status, took) {
		return
	}
	settings, remote := c.lane.settings.Load(), c.loggedAs()
	a.id = settings.requestID(remote, a.req, a.bytes)
	a.log(log, settings.loggedClient(remote, a.req, a.bytes), c.scope.Secure, c.shard, took)
}

// count counts an answer and returns how long it took.
func (a *answerRecord) count(shard uint32) time.Duration {
	took := time.Since(a.began)
	a.response.job.Fast.Observe(shard, a.status, a.sent, took)
	return took
}

func (a *answerRecord) log(log *accesslog.Log, remote string, secure bool, shard uint32, took time.Duration) {
	target := a.req.path
	if a.req.hasQuery {
		target.to = a.req.query.to
	}
	method := http.MethodGet
	if a.req.headOnly {
		method = http.MethodHead
	}
	log.Write(&accesslog.Record{
		Time:      a.began,
		Remote:    remote,
		Host:      view(a.req.value(a.bytes, hdrHost)),
		Method:    method,
		Target:    view(a.bytes[target.from:target.to]),
		Proto:     a.proto,
		Referer:   view(a.req.value(a.bytes, hdrReferer)),
		UserAgent: view(a.req.value(a.bytes, hdrUserAgent)),
		Status:    a.status,
		Bytes:     a.sent,
		Duration:  took,
		Fast:      true,
		Secure:    secure,
		ID:        a.id,
		Shard:     shard,
	})
}

const http1 = "HTTP/1.1"

// bytesOf returns s as bytes without a copy. They must not be changed.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// view returns b as a string without a copy. It is valid until b is changed: the log reads
// it only during Write.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
