package message

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/url"
	"slices"

	"millrace/internal/wire/field"
	"millrace/internal/wire/netset"
)

// Of makes h of a request that net/http has read, or that rules have changed: its path and
// query are those of r.URL, as the client has written them. It shares r's strings. Fields
// of one name stand together and keep their order, others have none.
func (h *Request) Of(r *http.Request) {
	if h.Fields == nil {
		h.Fields = h.inline[:0]
	}
	*h = Request{
		Method: r.Method, Target: r.RequestURI, Host: r.Host,
		Path: escaped(r.URL), Query: r.URL.RawQuery, HasQuery: r.URL.ForceQuery || r.URL.RawQuery != "",
		Length: r.ContentLength, Fields: h.Fields[:0], Set: h.Set[:0], Marks: h.Marks[:0],
		Major: r.ProtoMajor, Minor: r.ProtoMinor,
		Secure: r.TLS != nil, Subject: SubjectOf(r.TLS),
	}
	h.Peer, h.Port = netset.PeerPort(r.RemoteAddr)
	for name, values := range r.Header {
		for _, value := range values {
			h.Fields = append(h.Fields, field.Line{Name: name, Value: value})
		}
	}
	h.Simple = Simple(h.Path)
}

// SubjectOf returns the subject of the client's certificate (RFC 4514); "" where none was
// proved.
func SubjectOf(s *tls.ConnectionState) string {
	if s == nil || len(s.VerifiedChains) == 0 || len(s.PeerCertificates) == 0 {
		return ""
	}
	return s.PeerCertificates[0].Subject.String()
}

// escaped is the path of a URL exactly as it came in, with its escapes. URL.EscapedPath
// would escape bytes that RFC 3986 does not allow, such as | and ", and so change the path.
func escaped(u *url.URL) string {
	path := u.EscapedPath()
	if raw := u.RawPath; raw != "" && raw != path {
		if same, err := url.PathUnescape(raw); err == nil && same == u.Path {
			path = raw
		}
	}
	switch {
	case path == "":
		return "/"
	case path[0] != '/' && path != "*":
		return "/" + path
	}
	return path
}

// memory is what a request that only HTTP makes is stored in.
type memory struct {
	url    url.URL
	values [fewFields]string
}

// HTTP returns the head as a request of net/http without a body. client is its
// RemoteAddr. Its TLS only says that there is some. It returns nil if the target is not
// valid.
func (h *Request) HTTP(ctx context.Context, client string) *http.Request {
	m := new(memory)
	if !h.URL(&m.url) {
		return nil
	}
	r := new(http.Request).WithContext(ctx)
	r.Method, r.URL, r.Header, r.Host = h.Method, &m.url, h.Header(m.values[:]), h.Host
	r.Proto, r.ProtoMajor, r.ProtoMinor = h.Proto(), h.Major, h.Minor
	if h.Secure {
		r.TLS = &tls.ConnectionState{HandshakeComplete: true}
	}
	r.RequestURI, r.RemoteAddr, r.Body = h.Target, client, http.NoBody
	return r
}

// Header makes a map of the fields, of which each name stands once. values is memory for
// their values, if that suffices.
func (h *Request) Header(values []string) http.Header {
	if len(h.Fields) > len(values) {
		values = make([]string, len(h.Fields))
	}
	header := make(http.Header, len(h.Fields))
	for i := range h.Fields {
		values[i] = h.Fields[i].Value
		header[h.Fields[i].Name] = values[i : i+1 : i+1]
	}
	return header
}

// URL stores path and query, as they are now, in its argument. It returns false if the
// path is not valid.
func (h *Request) URL(to *url.URL) bool {
	to.Path, to.RawPath, to.RawQuery = h.Path, "", h.Query
	to.ForceQuery = h.HasQuery && h.Query == ""
	if h.Simple {
		return true
	}
	path, err := url.PathUnescape(h.Path)
	if err != nil {
		return false
	}
	to.Path = path
	if to.EscapedPath() != h.Path {
		to.RawPath = h.Path
	}
	return true
}

// URI returns path and query, as they are now and as net/url writes them.
func (h *Request) URI() string {
	if !h.Simple {
		var u url.URL
		if h.URL(&u) {
			return u.RequestURI()
		}
	}
	if !h.HasQuery {
		return h.Path
	}
	if n := len(h.Path); len(h.Target) == n+1+len(h.Query) && h.Target[:n] == h.Path && h.Target[n] == '?' && h.Target[n+1:] == h.Query {
		return h.Target
	}
	return h.Path + "?" + h.Query
}

// Decoded returns the path with nothing encoded in it.
func (h *Request) Decoded() string {
	if h.Simple {
		return h.Path
	}
	path, err := url.PathUnescape(h.Path)
	if err != nil {
		return h.Path
	}
	return path
}

// Clone returns a copy of the head, which shares its strings.
func (h *Request) Clone() *Request {
	c := new(Request)
	h.Copy(c)
	return c
}

// Copy makes a copy of the head, in place of what was there, which shares its strings.
func (h *Request) Copy(to *Request) {
	*to = *h
	to.Fields, to.Set, to.Marks = append(to.inline[:0], h.Fields...), slices.Clone(h.Set), slices.Clone(h.Marks)
}
