package php

import (
	"maps"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"

	"millrace/internal/access/signin"
	"millrace/internal/observe/trace"
	"millrace/internal/upstream/fastcgi"
	"millrace/internal/wire/field"
	"millrace/internal/wire/netset"
	"millrace/internal/wire/urlpath"
)

// about is what a request says besides its fields.
type about struct {
	method, uri, proto, host string
	path, query              string // that the script answers for: rules may have made them
	secure                   bool
	local, remote            string // host:port; others are not told
	length, kind             string // of the body; "" for none
}

// params are the parameters that php-fpm gets for a request: the variables of CGI (RFC
// 3875, 4.1) and those that PHP's manual adds.
func (h *Handler) params(r *http.Request, t target, length int64) []byte {
	about := about{method: r.Method, uri: urlpath.AsSent(r), path: r.URL.Path, query: r.URL.RawQuery, proto: r.Proto, host: r.Host, secure: r.TLS != nil, remote: r.RemoteAddr, kind: r.Header.Get("Content-Type")}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		about.local = local.String()
	}
	about.length = contentLength(length, r.Method, r.Header.Get("Content-Length"))
	b := h.appendAbout(make([]byte, 0, 2048), &about, t)
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		b = fastcgi.AppendParam(b, "SSL_CLIENT_VERIFY", "SUCCESS")
		b = fastcgi.AppendParam(b, "SSL_CLIENT_S_DN", r.TLS.PeerCertificates[0].Subject.String())
	}
	header := r.Header
	if t := trace.From(r.Context()); t.On() {
		header = maps.Clone(header)
		t.Inject(header)
	}
	trusted, verified := h.clients.Trusts(netset.Peer(r.RemoteAddr)), signin.VerifiedFields(r.Context())
	for name, values := range header {
		if variable := variable(name, trusted || verified[name] != nil); variable != "" {
			b = fastcgi.AppendParam(b, variable, strings.Join(values, separator(name)))
		}
	}
	return h.appendOwn(b)
}

// contentLength is CONTENT_LENGTH for PHP: "" for a request without a body. For a
// method that means a body, an empty one has length 0 (RFC 9110, 8.6).
func contentLength(n int64, method, said string) string {
	if n == 0 && said == "" && method != http.MethodPost && method != http.MethodPut && method != http.MethodPatch {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// appendOwn appends the operator's parameters: last, so that they win.
func (h *Handler) appendOwn(b []byte) []byte {
	for name, value := range h.options.Params {
		b = fastcgi.AppendParam(b, name, value)
	}
	return b
}

// appendAbout appends what is not a field of the request.
func (h *Handler) appendAbout(b []byte, a *about, t target) []byte {
	add := func(name, value string) { b = fastcgi.AppendParam(b, name, value) }
	add("SCRIPT_FILENAME", path.Join(h.scripts, t.script))
	add("SCRIPT_NAME", h.prefix+"/"+t.script)
	add("DOCUMENT_ROOT", h.scripts)
	add("DOCUMENT_URI", h.prefix+a.path)
	add("REQUEST_URI", a.uri)
	add("QUERY_STRING", a.query)
	add("REQUEST_METHOD", a.method)
	add("SERVER_PROTOCOL", a.proto)
	add("GATEWAY_INTERFACE", "CGI/1.1")
	add("SERVER_SOFTWARE", "millrace")
	add("REDIRECT_STATUS", "200") // without it, PHP built for it refuses to run
	if t.pathInfo != "" {
		add("PATH_INFO", t.pathInfo)
		add("PATH_TRANSLATED", path.Join(h.scripts, path.Clean(t.pathInfo)))
	}
	host, port := a.host, "80"
	if a.secure {
		add("REQUEST_SCHEME", "https")
		add("HTTPS", "on")
		port = "443"
	} else {
		add("REQUEST_SCHEME", "http")
	}
	if h, p, err := net.SplitHostPort(a.host); err == nil {
		host, port = h, p
	}
	add("SERVER_NAME", host)
	add("SERVER_PORT", port)
	if addr, _, err := net.SplitHostPort(a.local); err == nil {
		add("SERVER_ADDR", addr)
	}
	if addr, port, err := net.SplitHostPort(a.remote); err == nil {
		add("REMOTE_ADDR", addr)
		add("REMOTE_PORT", port)
	}
	if a.length != "" {
		add("CONTENT_LENGTH", a.length)
	}
	if a.kind != "" {
		add("CONTENT_TYPE", a.kind)
	}
	add("HTTP_HOST", a.host)
	return b
}

// variable is the CGI variable of a header field; "" for a field that scripts get in
// another way or must not get. A name with an underscore or a dot is dropped, since
// scripts could not tell it from the one with a dash (RFC 3875, 4.1.18). Proxy is
// dropped, since HTTP_PROXY is a setting of HTTP clients (CVE-2016-5385).
// X-Forwarded-For and the like are kept from a trusted proxy only.
func variable(name string, trusted bool) string {
	switch name {
	case "X-Ssl-Client-Subject": // of a proxy's upstreams: PHP has SSL_CLIENT_S_DN, and nobody's word for it
		return ""
	case "Content-Length", "Content-Type", "Proxy", "Host", "Connection", "Transfer-Encoding", "Te", "Trailer", "Upgrade", "Keep-Alive", "Proxy-Connection":
		return ""
	}
	if !field.Plain(name) || !trusted && field.Claim(name) {
		return ""
	}
	return "HTTP_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// separator is what stands between the values of a field.
func separator(name string) string {
	if name == "Cookie" {
		return "; " // RFC 9113, 8.2.3
	}
	return ", "
}
