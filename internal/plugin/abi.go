//go:build !small

package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tetratelabs/wazero/api"
	"golang.org/x/net/http/httpguts"

	"millrace/internal/wire/urlpath"
)

// hostModule is the name under which guests import the functions here.
const hostModule = "http_handler"

const i32, i64 = api.ValueTypeI32, api.ValueTypeI64

// features are what a guest asks for besides the heads of requests and answers.
type features uint32

// The features of the ABI that there are here. A third one, trailers, is not: fields behind
// a body are passed on, and no guest sees them.
const (
	bufferRequest features = 1 << iota
	bufferResponse

	supported = bufferRequest | bufferResponse
)

// Kinds of header fields and bodies.
const (
	ofRequest = iota
	ofResponse
	ofRequestTrailers
	ofResponseTrailers
)

// maxFields bounds the names and values of the fields that a guest sets in one phase, as
// long as it may go on setting them.
const maxFields = 64 << 10

// A fault is what a guest has done that the ABI does not allow, or what has failed for it.
// The call ends with it.
type fault struct {
	status int // of the answer; 0: 500
	text   string
}

// Error implements [error].
func (f *fault) Error() string { return f.text }

// fail ends the guest's call.
func fail(format string, args ...any) { panic(&fault{text: fmt.Sprintf(format, args...)}) }

// function is a function for guests. s has its arguments, which are i32, and then its
// result.
type function func(i *instance, s []uint64)

// Call implements [api.GoModuleFunction].
func (f function) Call(ctx context.Context, module api.Module, s []uint64) {
	for n := range s {
		s[n] = uint64(uint32(s[n])) //nolint:gosec // the upper half of an i32 is anything
	}
	i := ctx.Value(instanceKey{}).(*instance)
	i.module = module // which is not known yet while it starts
	f(i, s)
}

// host makes the module http_handler.
func (p *Plugin) host(ctx context.Context) (api.Module, error) {
	ints := func(n int) []api.ValueType { return slices.Repeat([]api.ValueType{i32}, n) }
	b := p.runtime.NewHostModuleBuilder(hostModule)
	for _, f := range []struct {
		name    string
		params  int // each an i32
		results []api.ValueType
		call    function
	}{
		{"enable_features", 1, ints(1), enableFeatures},
		{"get_config", 2, ints(1), func(i *instance, s []uint64) { i.write(s, i.options.Config) }},
		{"log_enabled", 1, ints(1), logEnabled},
		{"log", 3, nil, logMessage},
		{"get_method", 2, ints(1), func(i *instance, s []uint64) { i.write(s, i.serving().Method) }},
		{"set_method", 2, nil, setMethod},
		{"get_uri", 2, ints(1), func(i *instance, s []uint64) { i.write(s, uri(i.serving().URL)) }},
		{"set_uri", 2, nil, setURI},
		{"get_protocol_version", 2, ints(1), func(i *instance, s []uint64) { i.write(s, i.serving().Proto) }},
		{"get_header_names", 3, []api.ValueType{i64}, getHeaderNames},
		{"get_header_values", 5, []api.ValueType{i64}, getHeaderValues},
		{"set_header_value", 5, nil, func(i *instance, s []uint64) { i.changeHeader(s, http.Header.Set) }},
		{"add_header_value", 5, nil, func(i *instance, s []uint64) { i.changeHeader(s, http.Header.Add) }},
		{"remove_header", 3, nil, func(i *instance, s []uint64) {
			i.changeHeader(append(s[:3:3], 0, 0), func(h http.Header, name, _ string) { h.Del(name) })
		}},
		{"read_body", 3, []api.ValueType{i64}, readBody},
		{"write_body", 3, nil, writeBody},
		{"get_status_code", 0, ints(1), getStatus},
		{"set_status_code", 1, nil, setStatus},
		{"get_source_addr", 2, ints(1), func(i *instance, s []uint64) { i.write(s, i.sourceAddr()) }},
	} {
		b = b.NewFunctionBuilder().WithGoModuleFunction(f.call, ints(f.params), f.results).Export(f.name)
	}
	return b.Instantiate(ctx) //nolint:wrapcheck // never: nothing else has this name
}

// bytes returns a piece of the guest's memory.
func (i *instance) bytes(at, length uint64) []byte {
	b, ok := i.module.Memory().Read(uint32(at), uint32(length)) //nolint:gosec // see function
	if !ok {
		fail("%d bytes at %d are not in its memory", uint32(length), uint32(at)) //nolint:gosec // as above
	}
	return b
}

// text is bytes as a string.
func (i *instance) text(at, length uint64) string { return string(i.bytes(at, length)) }

// write puts a text where s, a buffer and its length, says, if it fits. s becomes its
// length: a guest whose buffer was too short asks again.
func (i *instance) write(s []uint64, text string) {
	if n := uint64(len(text)); n <= s[1] {
		copy(i.bytes(s[0], n), text)
	}
	s[0] = uint64(len(text))
}

// writeList is write for texts, each with a NUL behind it. s becomes how many there are, in
// its upper half, and their length.
func (i *instance) writeList(s []uint64, list []string) {
	n := uint64(0)
	for _, text := range list {
		n += uint64(len(text)) + 1
	}
	if n <= s[1] {
		b := i.bytes(s[0], n)
		for _, text := range list {
			b = b[copy(b, text):]
			b[0], b = 0, b[1:]
		}
	}
	s[0] = uint64(len(list))<<32 | n
}

// serving returns the request that the guest serves: as it starts, there is none.
func (i *instance) serving() *http.Request {
	if i.r == nil {
		fail("it serves no request yet")
	}
	return i.r
}

func enableFeatures(i *instance, s []uint64) {
	if i.r == nil {
		i.features |= features(s[0]) & supported
		s[0] = uint64(i.features)
		return
	}
	if i.exchange.after {
		fail("features are enabled before the answer is there")
	}
	i.wants |= features(s[0]) & supported
	s[0] = uint64(i.wants)
}

// level is that of a message: -1 debug, 0 info, 1 warning, 2 error, 3 none.
func level(s uint64) slog.Level { return slog.Level(int32(s)) * 4 } //nolint:gosec // as guests write it

func logEnabled(i *instance, s []uint64) {
	on := level(s[0]) <= slog.LevelError && i.log.Enabled(context.Background(), level(s[0]))
	s[0] = 0
	if on {
		s[0] = 1
	}
}

const (
	maxMessage = 4 << 10  // bytes of a guest's message that are logged
	maxLogged  = 64 << 10 // bytes of its messages during one request
)

// mayLog reports whether a message of this length is logged. The first one that is not is
// told about.
func (i *instance) mayLog(length int) bool {
	if i.logged > maxLogged {
		return false
	}
	if i.logged += length; i.logged <= maxLogged {
		return true
	}
	i.log.Warn("a plugin logs too much: its further messages about this request are left out", "bytes", maxLogged)
	return false
}

func logMessage(i *instance, s []uint64) {
	if level(s[0]) > slog.LevelError || !i.log.Enabled(context.Background(), level(s[0])) {
		return
	}
	if text := i.text(s[1], min(s[2], maxMessage)); i.mayLog(len(text)) {
		i.log.Log(context.Background(), level(s[0]), "a plugin says", "message", text)
	}
}

// before refuses what a guest may only do before the job has the request.
func (i *instance) before(what string) {
	if i.serving(); i.exchange.after {
		fail("%s after the request was passed on", what)
	}
}

// open refuses what a guest may only do to an answer that is its own, or that is held for
// it.
func (i *instance) open(what string) {
	if i.serving(); i.exchange.after && i.held == nil {
		fail("%s after the answer was sent: enable the feature buffer_response", what)
	}
}

// change returns the request as one that may be changed: what others see of it stays.
func (i *instance) change() *http.Request {
	if !i.changed {
		r, u := *i.r, *i.r.URL
		r.URL, r.Header = &u, i.r.Header.Clone()
		i.r, i.changed = &r, true
	}
	return i.r
}

func setMethod(i *instance, s []uint64) {
	i.before("set_method")
	method := i.text(s[0], s[1])
	if !httpguts.ValidHeaderFieldName(method) || method == http.MethodConnect {
		fail("%q is not a method that a request may get", method)
	}
	i.change().Method = method
}

// uri is the path and query of a request.
func uri(u *url.URL) string {
	if u.Path == "" && u.RawPath == "" {
		return "/" + strings.TrimPrefix(u.RequestURI(), "/")
	}
	return u.RequestURI()
}

// setURI gives the request another path and query, for the job of the same route. As with
// rewrites, a path that some server may read as another one is refused. Spaces are escaped:
// on the way to an upstream they would end the target.
func setURI(i *instance, s []uint64) {
	i.before("set_uri")
	text := strings.ReplaceAll(i.text(s[0], s[1]), " ", "%20")
	if text == "" || text[0] == '?' {
		text = "/" + text
	}
	u, err := url.ParseRequestURI(text)
	if err != nil || text[0] != '/' {
		fail("%q is not a path with a query", text)
	}
	if urlpath.Several(u.Path, u.RawPath) {
		fail("the path of %q can be read in more than one way", text)
	}
	to := i.change().URL
	to.Path, to.RawPath, to.RawQuery, to.ForceQuery = u.Path, u.RawPath, u.RawQuery, u.ForceQuery
}

// fields returns the fields of a kind, nil for trailers.
func (i *instance) fields(kind uint64) http.Header {
	switch i.serving(); kind {
	case ofRequest:
		return i.r.Header
	case ofResponse:
		return i.w.Header()
	case ofRequestTrailers, ofResponseTrailers:
		return nil
	}
	fail("there is no kind %d of fields", kind)
	return nil
}

func getHeaderNames(i *instance, s []uint64) {
	var names []string
	for name := range i.fields(s[0]) {
		if !strings.HasPrefix(name, http.TrailerPrefix) {
			names = append(names, strings.ToLower(name))
		}
	}
	if s[0] == ofRequest && i.r.Host != "" {
		names = append(names, "host")
	}
	slices.Sort(names)
	i.writeList(s[1:], names)
	s[0] = s[1]
}

func getHeaderValues(i *instance, s []uint64) {
	fields, name := i.fields(s[0]), i.name(s)
	values := fields[name]
	if s[0] == ofRequest && name == "Host" && i.r.Host != "" {
		values = []string{i.r.Host}
	}
	i.writeList(s[3:], values)
	s[0] = s[3]
}

// name is the name of a field.
func (i *instance) name(s []uint64) string {
	name := i.text(s[1], s[2])
	if !httpguts.ValidHeaderFieldName(name) {
		fail("%q is not the name of a field", name)
	}
	return textproto.CanonicalMIMEHeaderKey(name)
}

// changeHeader changes a field by what set, add and remove do.
func (i *instance) changeHeader(s []uint64, how func(h http.Header, name, value string)) {
	name, value := i.name(s), i.text(s[3], s[4])
	if !httpguts.ValidHeaderFieldValue(value) {
		fail("the value of %s has characters that no field may have", name)
	}
	if i.set += len(name) + len(value); i.set > maxFields {
		fail("it has set more than %d bytes of fields", maxFields)
	}
	switch s[0] {
	case ofRequest:
		i.before("a field of the request is changed")
		r := i.change()
		switch {
		case name == "Host":
			host := http.Header{}
			how(host, name, value)
			if h := host.Get(name); httpguts.ValidHostHeader(h) && h != "" {
				r.Host = h
			}
		case !ofConnection(name):
			how(r.Header, name, value)
		}
	case ofResponse:
		i.open("a field of the answer is changed")
		if !ofConnection(name) {
			how(i.w.Header(), name, value)
		}
	case ofRequestTrailers, ofResponseTrailers:
		fail("there are no trailers here: enable_features has said so")
	default:
		fail("there is no kind %d of fields", s[0])
	}
}

// ofConnection reports whether a field says where a message ends, or how its connection
// goes on. The server sets these; what guests make of them is left out.
func ofConnection(name string) bool {
	switch name {
	case "Connection", "Content-Length", "Expect", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return strings.HasPrefix(name, http.TrailerPrefix)
}

func readBody(i *instance, s []uint64) {
	kind, room := s[0], i.bytes(s[1], s[2])
	if len(room) == 0 {
		fail("read_body has no room for a body")
	}
	var n int
	var end bool
	switch kind {
	case ofRequest:
		i.before("the request's body is read")
		n, end = i.readRequest(room)
	case ofResponse:
		i.open("the answer's body is read")
		n = copy(room, i.body[i.readAnswer:])
		i.readAnswer += n
		end = i.readAnswer == len(i.body)
	default:
		fail("there is no kind %d of bodies", kind)
	}
	s[0] = uint64(n)
	if end {
		s[0] |= 1 << 32
	}
}

// readRequest reads the body until room is full, or it ends. The time in which it waits for
// the client is not the guest's, but has a bound of its own: others wait for the instance.
func (i *instance) readRequest(room []byte) (n int, end bool) {
	if i.watch.pause() {
		defer i.watch.resume()
	}
	for n < len(room) {
		began := time.Now()
		m, err := i.r.Body.Read(room[n:])
		n += m
		if i.waited += time.Since(began); i.waited > i.options.UploadTimeout {
			i.meters.Uploads.Add(0, 1)
			panic(&fault{http.StatusRequestTimeout, "the request's body has not come within " + i.options.UploadTimeout.String() + " (upload_timeout)"})
		}
		if errors.Is(err, io.EOF) {
			end = true
			break
		}
		if large := new(http.MaxBytesError); errors.As(err, &large) {
			panic(&fault{http.StatusRequestEntityTooLarge, "the request's body is larger than its route allows"})
		} else if err != nil {
			panic(&fault{http.StatusBadRequest, "the request's body cannot be read: " + err.Error()})
		}
	}
	i.read += n
	if i.wants&bufferRequest != 0 && !i.wroteRequest {
		if len(i.kept)+n > int(i.options.BodyBytes) {
			panic(&fault{http.StatusRequestEntityTooLarge, "the request's body is larger than " + i.options.BodyBytes.String() + " (body_bytes)"})
		}
		i.kept = append(i.kept, room[:n]...)
	}
	return n, end
}

func writeBody(i *instance, s []uint64) {
	b := i.bytes(s[1], s[2])
	to := &i.own
	switch s[0] {
	case ofRequest:
		i.before("the request's body is written")
		if !i.wroteRequest {
			i.wroteRequest, i.kept = true, nil
		}
		to = &i.kept
	case ofResponse:
		i.open("the answer's body is written")
		i.wrote = true
	default:
		fail("there is no kind %d of bodies", s[0])
	}
	if len(*to)+len(b) > int(i.options.BodyBytes) {
		fail("it writes a body of more than %s (body_bytes)", i.options.BodyBytes)
	}
	*to = append(*to, b...)
}

func getStatus(i *instance, s []uint64) {
	i.open("the status is read")
	s[0] = uint64(max(i.status, 0)) //nolint:gosec // a status
	if s[0] == 0 {
		s[0] = http.StatusOK
	}
}

func setStatus(i *instance, s []uint64) {
	i.open("the status is set")
	if s[0] < 200 || s[0] > 999 {
		fail("%d is not the status of an answer", s[0])
	}
	i.status = int(s[0]) //nolint:gosec // checked
}

// sourceAddr is the client's address with its port, which is 0 where a proxy has named it.
func (i *instance) sourceAddr() string {
	r := i.serving()
	if i.client == nil {
		return r.RemoteAddr
	}
	who := i.client(r)
	if peer, err := netip.ParseAddrPort(r.RemoteAddr); !who.IsValid() || err == nil && peer.Addr().Unmap() == who.Unmap() {
		return r.RemoteAddr
	}
	return net.JoinHostPort(who.String(), strconv.Itoa(0))
}
