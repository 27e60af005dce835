package lane

import "net/http"

// HotRequest is a request that the lane has answered, without what the answer does not
// depend on. At an upgrade one process passes them to its successor, which may have
// another config.
type HotRequest struct {
	Secure bool              `json:"secure,omitempty"` // it came over TLS
	Host   string            `json:"host"`
	Target string            `json:"target"`
	Fields map[string]string `json:"fields,omitempty"`
}

// names has the canonical names of the kept headers.
var names = [numKept]string{
	hdrHost: "Host", hdrAcceptEncoding: "Accept-Encoding", hdrAccept: "Accept", hdrAcceptLanguage: "Accept-Language",
	hdrAuthorization: "Authorization", hdrCookie: "Cookie", hdrOrigin: "Origin", hdrReferer: "Referer",
	hdrUserAgent: "User-Agent", hdrIfNoneMatch: "If-None-Match", hdrIfModifiedSince: "If-Modified-Since",
	hdrForwardedProto: "X-Forwarded-Proto", hdrForwardedHost: "X-Forwarded-Host", hdrForwardedFor: "X-Forwarded-For",
	hdrForwarded: "Forwarded", hdrRealIP: "X-Real-Ip", hdrTrueClientIP: "True-Client-Ip", hdrConnectingIP: "Cf-Connecting-Ip",
	hdrSaveData: "Save-Data", hdrDPR: "Dpr", hdrWidth: "Width", hdrViewportWidth: "Viewport-Width",
	hdrCacheControl: "Cache-Control", hdrPragma: "Pragma",
	hdrAvailableDictionary: "Available-Dictionary", hdrSecFetchSite: "Sec-Fetch-Site", hdrRequestID: "X-Request-Id",
	hdrRange: "Range", hdrIfRange: "If-Range",
}

// ResetRecent forgets which answers were used. [Lane.HotRequests] then begins with those
// that are used from now on.
func (l *Lane) ResetRecent() {
	if !l.on() {
		return
	}
	for i := range l.table.slots {
		if e := l.table.slots[i].Load(); e != nil {
			e.recent.Store(false)
		}
	}
}

// HotRequests lists requests that the lane has answered, those since [Lane.ResetRecent]
// first: of at most so many answers, and so many bytes. Those whose answer has become
// invalid are among them, since clients will ask for the next one, too.
func (l *Lane) HotRequests(answers, bytes int) (list []HotRequest) {
	if !l.on() {
		return nil
	}
	for _, recent := range []bool{true, false} {
		for i := range l.table.slots {
			e := l.table.slots[i].Load()
			if e == nil || e.recent.Load() != recent {
				continue
			}
			for j := range e.variants {
				a, size, ok := l.hotRequest(e, &e.variants[j])
				if !ok {
					continue
				}
				if bytes -= size; bytes < 0 || len(list) == answers {
					return list
				}
				list = append(list, a)
			}
		}
	}
	return list
}

// askedBytes is about the size of a request besides its texts.
const askedBytes = 64

// hotRequest returns a request that leads to a variant, and about its size. ok is false if
// its site is gone.
func (l *Lane) hotRequest(e *entry, v *variant) (a HotRequest, size int, ok bool) {
	a.Target = e.target
	for _, s := range l.scopes {
		if t := s.Sites.Load(); t != nil && t.Has(e.site) {
			a.Secure, a.Host, ok = s.Secure, t.Host(e.site), true
		}
	}
	put := func(name, value string) {
		if a.Fields == nil {
			a.Fields = map[string]string{}
		}
		a.Fields[name] = value
		size += len(name) + len(value)
	}
	if v.preference != 0 {
		put(names[hdrAcceptEncoding], v.preference.String())
	}
	for i, id := range e.varyOn {
		switch value := v.values[i]; {
		case id == hdrHost:
			a.Host = value
		case value != "":
			put(names[id], value)
		}
	}
	return a, size + len(a.Target) + len(a.Host) + askedBytes, ok
}

// Header returns the request's header.
func (a *HotRequest) Header() http.Header {
	h := http.Header{}
	for name, value := range a.Fields {
		h.Set(name, value)
	}
	return h
}
