package php

import (
	"net"
	"net/http"
	"net/netip"
	"path"
	"strconv"
	"strings"

	"millrace/internal/access/signin"
	"millrace/internal/observe/trace"
	"millrace/internal/upstream/fastcgi"
	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
	"millrace/internal/wire/urlpath"
)

// asked is a request for a script.
type asked struct {
	*message.Request
	local  netip.Addr // where the client has connected to; the zero one: it is not known
	length int64      // of the body, in bytes
}

// askedBy is a request of net/http whose body has so many bytes.
func askedBy(r *http.Request, length int64) *asked {
	q, ctx := &asked{Request: new(message.Request), length: length}, r.Context()
	q.Of(r)
	q.Target = urlpath.AsSent(r)
	q.Set, q.Marks = field.Of(signin.VerifiedFields(ctx)), trace.From(ctx).Fields(nil)
	if local, ok := ctx.Value(http.LocalAddrContextKey).(net.Addr); ok {
		q.local = addrOf(local)
	}
	return q
}

// addrOf is the IP address of a TCP or UDP socket, the zero one of others.
func addrOf(a net.Addr) netip.Addr {
	if a, ok := a.(interface{ AddrPort() netip.AddrPort }); ok {
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// appendParams appends the parameters that php-fpm gets: the variables of CGI (RFC 3875,
// 4.1), those that PHP's manual adds, and the operator's, which are the last and so win.
func (h *Handler) appendParams(b []byte, q *asked, t target) []byte {
	add := func(name, value string) { b = fastcgi.AppendParam(b, name, value) }
	add("SCRIPT_FILENAME", path.Join(h.scripts, t.script))
	add("SCRIPT_NAME", h.prefix+"/"+t.script)
	add("DOCUMENT_ROOT", h.scripts)
	add("DOCUMENT_URI", h.prefix+q.Decoded())
	add("REQUEST_URI", q.Target)
	add("QUERY_STRING", q.Query)
	add("REQUEST_METHOD", q.Method)
	add("SERVER_PROTOCOL", proto(q.Major, q.Minor))
	add("GATEWAY_INTERFACE", "CGI/1.1")
	add("SERVER_SOFTWARE", "millrace")
	add("REDIRECT_STATUS", "200") // without it, PHP built for it refuses to run
	if t.pathInfo != "" {
		add("PATH_INFO", t.pathInfo)
		add("PATH_TRANSLATED", path.Join(h.scripts, path.Clean(t.pathInfo)))
	}
	host, port := q.Host, "80"
	add("REQUEST_SCHEME", q.Scheme())
	if q.Secure {
		add("HTTPS", "on")
		port = "443"
	}
	if h, p, err := net.SplitHostPort(q.Host); err == nil {
		host, port = h, p
	}
	add("SERVER_NAME", host)
	add("SERVER_PORT", port)
	if q.local.IsValid() {
		add("SERVER_ADDR", q.local.String())
	}
	if q.Peer.IsValid() {
		add("REMOTE_ADDR", q.Peer.String())
	}
	if q.Port != 0 {
		add("REMOTE_PORT", strconv.Itoa(int(q.Port)))
	}
	if q.Subject != "" {
		add("SSL_CLIENT_VERIFY", "SUCCESS")
		add("SSL_CLIENT_S_DN", q.Subject)
	}
	if q.hasBody() {
		add("CONTENT_LENGTH", strconv.FormatInt(q.length, 10))
	}
	if kind := q.Value("Content-Type"); kind != "" {
		add("CONTENT_TYPE", kind)
	}
	add("HTTP_HOST", q.Host)
	trusted := h.clients.Trusts(q.Peer)
	b = appendFields(b, q.Fields, func(l field.Line) bool { return passed(l.Name, trusted) && !q.Replaced(l.Name) })
	added := func(l field.Line) bool { return passed(l.Name, true) && l.Value != "" }
	b = appendFields(appendFields(b, q.Set, added), q.Marks, added)
	for name, value := range h.options.Params {
		b = fastcgi.AppendParam(b, name, value)
	}
	return b
}

// proto is a version of HTTP as net/http writes it.
func proto(major, minor int) string {
	switch {
	case major == 1 && minor == 1:
		return "HTTP/1.1"
	case major == 2 && minor == 0:
		return "HTTP/2.0"
	}
	return "HTTP/" + strconv.Itoa(major) + "." + strconv.Itoa(minor)
}

// hasBody reports whether PHP gets a length. For a method that means a body, an empty one
// has length 0 (RFC 9110, 8.6).
func (q *asked) hasBody() bool {
	return q.length != 0 || q.Fields.Has("Content-Length") || q.Method == http.MethodPost || q.Method == http.MethodPut || q.Method == http.MethodPatch
}

// appendFields appends the variables of those fields that are wanted. Lines of one name
// stand together.
func appendFields(b []byte, lines field.Lines, wanted func(field.Line) bool) []byte {
	var room [64]byte
	for len(lines) > 0 {
		l, n := lines[0], 1
		for n < len(lines) && lines[n].Name == l.Name {
			n++
		}
		if wanted(l) {
			if same := lines[:n]; n > 1 {
				l.Value = strings.Join(same.Values(l.Name), separator(l.Name))
			}
			b = fastcgi.AppendParam(b, string(appendVariable(room[:0], l.Name)), l.Value)
		}
		lines = lines[n:]
	}
	return b
}

// passed reports whether scripts get a header field as a variable. They get some in another
// way, and some not at all. A name with an underscore or a dot is dropped, since
// scripts could not tell it from the one with a dash (RFC 3875, 4.1.18). Proxy is
// dropped, since HTTP_PROXY is a setting of HTTP clients (CVE-2016-5385).
// X-Forwarded-For and the like are kept from a trusted proxy only.
func passed(name string, trusted bool) bool {
	switch name {
	case "X-Ssl-Client-Subject": // of a proxy's upstreams: PHP has SSL_CLIENT_S_DN, and nobody's word for it
		return false
	case "Content-Length", "Content-Type", "Proxy", "Host", "Connection", "Transfer-Encoding", "Te", "Trailer", "Upgrade", "Keep-Alive", "Proxy-Connection":
		return false
	}
	return field.Plain(name) && (trusted || !field.Claim(name))
}

// appendVariable appends the CGI variable of a header field.
func appendVariable(b []byte, name string) []byte {
	b = append(b, "HTTP_"...)
	for i := range len(name) {
		c := name[i]
		switch {
		case c == '-':
			c = '_'
		case 'a' <= c && c <= 'z':
			c -= 'a' - 'A'
		}
		b = append(b, c)
	}
	return b
}

// separator is what stands between the values of a field.
func separator(name string) string {
	if name == "Cookie" {
		return "; " // RFC 9113, 8.2.3
	}
	return ", "
}
