package lane

import "millrace/internal/wire/field"

// headerID names a request header that the lane knows.
type headerID uint8

// Headers whose value is kept, because an entry may vary on it, the log prints it, or it
// makes the request conditional or one for a range. An entry that does not vary on one is sent whatever it
// says: so with Cache-Control, on which only some caches' answers vary.
const (
	hdrHost headerID = iota
	hdrAcceptEncoding
	hdrAccept
	hdrAcceptLanguage
	hdrAuthorization
	hdrCookie
	hdrOrigin
	hdrReferer
	hdrUserAgent
	hdrIfNoneMatch
	hdrIfModifiedSince
	hdrForwardedProto
	hdrForwardedHost
	hdrForwardedFor
	hdrForwarded
	hdrRealIP
	hdrTrueClientIP
	hdrConnectingIP
	hdrSaveData
	hdrDPR
	hdrWidth
	hdrViewportWidth
	hdrCacheControl
	hdrPragma
	hdrAvailableDictionary
	hdrSecFetchSite
	hdrRequestID
	hdrRange
	hdrIfRange
	numKept // the number of them
)

// Headers that are recognised by name only.
const (
	// hdrHarmless: it changes no answer, not even of most handlers of other programs.
	hdrHarmless headerID = iota + numKept
	// hdrUnknown: no list has the name. It matters only to answers that vary on it.
	hdrUnknown
	hdrConnection
	hdrContentLength
	hdrTransferEncoding
	hdrUpgrade
	hdrExpect
	hdrHTTP2Settings
	hdrTrailer
	hdrTE
	hdrRefuse headerID = 0xff // net/http decides
)

// maxHeaderName is the longest name that a list has.
const maxHeaderName = 40

// lookupHeader returns the id of a name in any letter case.
func lookupHeader(name []byte) headerID {
	if len(name) > maxHeaderName {
		return unknownHeader(name)
	}
	var buf [maxHeaderName]byte
	lower := buf[:len(name)]
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	return lookupLower(lower)
}

// appendLower appends a name in lower case.
func appendLower(b []byte, name string) []byte {
	for i := range len(name) {
		c := name[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		b = append(b, c)
	}
	return b
}

// lookupLower is lookupHeader for a name in lower case.
func lookupLower(name []byte) headerID { //nolint:funlen // a table
	switch string(name) { // one, since every field of every request comes by here
	case "host":
		return hdrHost
	case "accept-encoding":
		return hdrAcceptEncoding
	case "accept":
		return hdrAccept
	case "accept-language":
		return hdrAcceptLanguage
	case "authorization":
		return hdrAuthorization
	case "cookie":
		return hdrCookie
	case "origin":
		return hdrOrigin
	case "referer":
		return hdrReferer
	case "user-agent":
		return hdrUserAgent
	case "if-none-match":
		return hdrIfNoneMatch
	case "if-modified-since":
		return hdrIfModifiedSince
	case "x-forwarded-proto":
		return hdrForwardedProto
	case "x-forwarded-host":
		return hdrForwardedHost
	case "x-forwarded-for":
		return hdrForwardedFor
	case "forwarded":
		return hdrForwarded
	case "x-real-ip":
		return hdrRealIP
	case "true-client-ip":
		return hdrTrueClientIP
	case "cf-connecting-ip":
		return hdrConnectingIP
	case "save-data":
		return hdrSaveData
	case "dpr":
		return hdrDPR
	case "width":
		return hdrWidth
	case "viewport-width":
		return hdrViewportWidth
	case "cache-control":
		return hdrCacheControl
	case "pragma":
		return hdrPragma
	case "available-dictionary":
		return hdrAvailableDictionary
	case "sec-fetch-site":
		return hdrSecFetchSite
	case "x-request-id":
		return hdrRequestID
	case "range":
		return hdrRange
	case "if-range":
		return hdrIfRange

	// They say how long a request is or what becomes of the connection. Of these match
	// accepts only "Connection: keep-alive" and "TE: trailers"; the tracker looks at the
	// lengths.
	case "connection":
		return hdrConnection
	case "content-length":
		return hdrContentLength
	case "transfer-encoding":
		return hdrTransferEncoding
	case "upgrade":
		return hdrUpgrade
	case "expect":
		return hdrExpect
	case "http2-settings":
		return hdrHTTP2Settings
	case "trailer":
		return hdrTrailer
	case "te":
		return hdrTE

	// Conditions that the lane does not evaluate, and fields of bodies and connections that
	// are not defined for requests.
	case "if-match", "if-unmodified-since", "content-encoding", "content-range", "proxy-connection":
		return hdrRefuse

	// Those of browsers, crawlers and proxies.
	case "dnt", "priority", "upgrade-insecure-requests", "x-requested-with",
		"accept-charset", "from", "via", "x-correlation-id",
		"x-forwarded-port", "x-forwarded-server", "traceparent", "tracestate", "baggage", "purpose",
		"x-purpose", "x-moz", "device-memory", "downlink", "ect", "rtt", "keep-alive",
		"service-worker-navigation-preload", "cdn-loop", "x-amzn-trace-id", "alt-used",
		"content-type", "dictionary-id", "sec-gpc", "sec-purpose",
		"sec-ch-ua", "sec-ch-ua-mobile", "sec-ch-ua-platform", "sec-fetch-dest", "sec-fetch-mode", "sec-fetch-user":
		return hdrHarmless
	}
	id := unknownHeader(name)
	if id == hdrUnknown && (hasPrefix(name, "sec-fetch-") || hasPrefix(name, "sec-ch-") || hasPrefix(name, "cf-")) {
		return hdrHarmless
	}
	return id
}

// unknownHeader returns hdrUnknown for a name of letters, digits and "-". Others are for
// net/http: "Content-Length " is how smuggling begins, and X_Api_Key is what some take for
// X-Api-Key (see [field.Fold]).
func unknownHeader(name []byte) headerID {
	if len(name) > 0 && field.Plain(view(name)) {
		return hdrUnknown
	}
	return hdrRefuse
}

func hasPrefix(name []byte, prefix string) bool {
	return len(name) > len(prefix) && string(name[:len(prefix)]) == prefix
}
