package php

import (
	"maps"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	"millrace/internal/fastcgi"
	"millrace/internal/trace"
)

// params are what php-fpm is told of a request: the variables of CGI (RFC 3875,
// 4.1) with those that PHP's manual adds.
func (h *Handler) params(r *http.Request, t target, length int64) []byte {
	b := make([]byte, 0, 2048)
	add := func(name, value string) { b = fastcgi.AppendParam(b, name, value) }
	name := h.prefix + "/" + t.script
	uri := requestURI(r)
	document, query, _ := strings.Cut(uri, "?")
	if plain, err := url.PathUnescape(document); err == nil {
		document = plain
	}
	add("SCRIPT_FILENAME", path.Join(h.scripts, t.script))
	add("SCRIPT_NAME", name)
	add("DOCUMENT_ROOT", h.scripts)
	add("DOCUMENT_URI", document)
	add("REQUEST_URI", uri)
	add("QUERY_STRING", query)
	add("REQUEST_METHOD", r.Method)
	add("SERVER_PROTOCOL", r.Proto)
	add("GATEWAY_INTERFACE", "CGI/1.1")
	add("SERVER_SOFTWARE", "millrace")
	add("REDIRECT_STATUS", "200") // without it, PHP built for it refuses to run
	if t.pathInfo != "" {
		add("PATH_INFO", t.pathInfo)
		add("PATH_TRANSLATED", path.Join(h.scripts, path.Clean(t.pathInfo)))
	}
	add("REQUEST_SCHEME", scheme(r))
	if r.TLS != nil {
		add("HTTPS", "on")
		if len(r.TLS.VerifiedChains) > 0 {
			add("SSL_CLIENT_VERIFY", "SUCCESS")
			add("SSL_CLIENT_S_DN", r.TLS.PeerCertificates[0].Subject.String())
		}
	}
	host, port := r.Host, "80"
	if r.TLS != nil {
		port = "443"
	}
	if h, p, err := net.SplitHostPort(r.Host); err == nil {
		host, port = h, p
	}
	add("SERVER_NAME", host)
	add("SERVER_PORT", port)
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		if addr, _, err := net.SplitHostPort(local.String()); err == nil {
			add("SERVER_ADDR", addr)
		}
	}
	if addr, port, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		add("REMOTE_ADDR", addr)
		add("REMOTE_PORT", port)
	}
	if length > 0 || r.ContentLength == 0 && r.Header.Get("Content-Length") != "" {
		add("CONTENT_LENGTH", strconv.FormatInt(length, 10))
	}
	if kind := r.Header.Get("Content-Type"); kind != "" {
		add("CONTENT_TYPE", kind)
	}
	add("HTTP_HOST", r.Host)
	header := r.Header
	if t := trace.From(r.Context()); t.On() {
		header = maps.Clone(header)
		t.Inject(header)
	}
	for name, values := range header {
		if variable := variable(name); variable != "" {
			add(variable, strings.Join(values, separator(name)))
		}
	}
	for name, value := range h.options.Params { // last, so that they win
		add(name, value)
	}
	return b
}

// requestURI is what the client wrote behind the host.
func requestURI(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		return r.RequestURI
	}
	if u, err := url.Parse(r.RequestURI); err == nil && u.Host != "" { // RFC 9112, 3.2.2
		return u.RequestURI()
	}
	return r.URL.RequestURI()
}

func scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// variable is the name of a header field for CGI, "" for one that is told in
// another way or not at all. A field with an underscore would be taken for the
// one with a dash, and Proxy for a setting of HTTP clients (CVE-2016-5385).
func variable(name string) string {
	switch name {
	case "X-Ssl-Client-Subject": // of a proxy's upstreams: PHP has SSL_CLIENT_S_DN, and nobody's word for it
		return ""
	case "Content-Length", "Content-Type", "Proxy", "Host", "Connection", "Transfer-Encoding", "Te", "Trailer", "Upgrade", "Keep-Alive", "Proxy-Connection":
		return ""
	}
	if strings.ContainsRune(name, '_') {
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
