package lane

import (
	"bytes"
	"context"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2/hpack"

	"millrace/internal/wire/send"
	"millrace/internal/wire/stall"
)

// HTTP3Conn is what the lane keeps of a connection over HTTP/3. The connection itself
// belongs to quic-go, whose handler calls [AnswerHTTP3] first.
type HTTP3Conn struct {
	lane   *Lane
	scope  *Scope
	shard  uint32
	remote string
	client net.Addr
}

// http3Key is the context key of the *HTTP3Conn of a request.
type http3Key struct{}

// WithHTTP3 returns the parent context for the requests of a new HTTP/3 connection, in
// which [AnswerHTTP3], Offer, Begin and Drain find the lane.
func (l *Lane) WithHTTP3(ctx context.Context, scope *Scope, client net.Addr) context.Context {
	v := &HTTP3Conn{lane: l, scope: scope, shard: l.serial.Add(1), remote: RemoteHost(client), client: client}
	return l.WithDrain(context.WithValue(ctx, http3Key{}, v))
}

// AnswerHTTP3 answers a request over HTTP/3 if it is hot, and reports whether it was. The
// request must have no body.
func AnswerHTTP3(w http.ResponseWriter, r *http.Request) bool {
	v, ok := r.Context().Value(http3Key{}).(*HTTP3Conn)
	return ok && v.lane.on() && v.answer(w, r)
}

func (v *HTTP3Conn) answer(w http.ResponseWriter, r *http.Request) bool {
	s := scratchPool.Get().(*scratch)
	defer s.release()
	n, ok := matchParsed(s.buf[:0], r, &s.req)
	if !ok {
		return false
	}
	now := time.Now()
	q, req := &s.req, s.buf[:n]
	settings := v.lane.settings.Load()
	found := v.lane.table.find(v.scope.Sites.Load().ID(q.value(req, hdrHost)), req, q, now.Unix())
	if found == nil || !settings.allow(req, q) {
		return false
	}
	as := found.choose(req, q)
	if as.of == nil {
		return false
	}
	size := int(as.size)
	if q.headOnly {
		size = 0
	}
	f := as.file(q)
	if f != nil && size > maxCopiedFile {
		return false
	}
	body := as.body()
	if size > 0 && f != nil {
		buf := bufferPool.Get().(*[]byte)
		defer bufferPool.Put(buf)
		if body = (*buf)[:size]; !as.readFile(body, now.Unix()) {
			return false
		}
	}
	sent := 0
	if !found.admits(v.client, q, req, now, settings) {
		return false
	}
	as.setFields(w.Header(), now.Unix())
	w.WriteHeader(as.status)
	if size > 0 {
		waits := stall.Of(r.Context())
		waits.Wait()
		sent = writeBody(w, body[:size], settings.Write)
		waits.Go()
	}
	v.lane.meters.Sent.Copied.Add(v.shard, uint64(sent))
	done := answerRecord{found, q, req, as.status, int64(sent), now, "HTTP/3.0", settings.requestID(v.remote, q, req)}
	if took := done.count(v.shard); !found.noLog && settings.Log.Wants(now, as.status, took) {
		done.log(settings.Log, settings.loggedClient(v.remote, q, req), true, v.shard, took)
	}
	if sent < size {
		panic(http.ErrAbortHandler) // ends the stream so that nobody takes the answer for complete
	}
	return true
}

// quicBuffered is how much quic-go buffers without waiting for the client.
const quicBuffered = 1 << 10

// writeBody writes a body in pieces. The client has the timeout for each.
func writeBody(w http.ResponseWriter, body []byte, timeout time.Duration) (sent int) {
	d, ok := w.(interface{ SetWriteDeadline(t time.Time) error })
	for len(body) > 0 {
		if ok && len(body) > quicBuffered {
			_ = d.SetWriteDeadline(time.Now().Add(timeout)) // of a stream
		}
		n, err := w.Write(body[:min(len(body), maxWrite)])
		body, sent = body[n:], sent+n
		if err != nil {
			break
		}
	}
	return sent
}

// fields is an answer's header as a handler sets it, with the date of one second. It must
// not be changed.
type fields struct {
	second int64
	header http.Header
}

// setFields sets the header as of a second.
func (c *choice) setFields(h http.Header, second int64) {
	of := &c.form().fields
	f := of.Load()
	if f == nil || f.second != second {
		f = &fields{second, headerOf(c.commonText(second))}
		of.Store(f)
	}
	maps.Copy(h, f.header)
	if c.isPart() {
		h["Content-Length"] = []string{strconv.FormatInt(c.size, 10)}
		h["content-range"] = []string{string(send.AppendContentRange(nil, c.base, c.size, c.of.answer.Size))}
	}
}

// headerOf parses a header in HTTP/1.1's form. Names are in lower case, as they are sent:
// quic-go would copy others. Those that it looks up itself are canonical.
func headerOf(text []byte) http.Header {
	h := http.Header{"Content-Type": nil} // or quic-go would guess one
	_, rest, _ := bytes.Cut(text, []byte("\r\n"))
	for {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, ok := strings.Cut(string(line), ": ")
		if !ok {
			return h // the empty line
		}
		switch name {
		case "Date", "Content-Length", "Content-Type", "Content-Encoding", "Trailer":
		default:
			name = strings.ToLower(name)
		}
		h[name] = append(h[name], value)
	}
}

// matchParsed is match for a request that quic-go has parsed. The fields' values are
// appended to b, to which q's spans refer. It accepts what match accepts.
func matchParsed(b []byte, r *http.Request, q *request) (n int, ok bool) {
	*q = request{}
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.ContentLength != 0 {
		return 0, false
	}
	q.headOnly = r.Method == http.MethodHead
	path, authority := r.RequestURI, r.Host
	if len(path) == 0 || path[0] != '/' || authority == "" || len(path)+len(authority) > maxHead {
		return 0, false
	}
	if b, ok = matchPath(b, path, q); !ok {
		return 0, false
	}
	b, q.headers[hdrHost] = appendValue(b, authority)
	q.header = r.Header
	for name, values := range r.Header {
		var buf [maxHeaderName]byte
		f := hpack.HeaderField{Name: view(appendLower(buf[:0], name))}
		for _, f.Value = range values {
			if f.Name == "te" && f.Value == "trailers" {
				continue
			}
			if b, ok = matchHPACKField(b, &f, q); !ok {
				return 0, false
			}
		}
	}
	return len(b), finish(b, q) == matched
}
