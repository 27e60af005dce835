package lane

// headerID names a request header that the lane knows.
type headerID uint8

// Headers whose value is kept, because an entry may vary on it, the log prints it, or it
// makes the request conditional. An entry that does not vary on one is sent whatever it
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
	numKept // the number of them
)

// Headers that are recognised by name only.
const (
	hdrHarmless headerID = iota + numKept // changes nothing in any answer of ours
	hdrConnection
	hdrContentLength
	hdrTransferEncoding
	hdrUpgrade
	hdrExpect
	hdrHTTP2Settings
	hdrTrailer
	hdrRefuse headerID = 0xff // unknown: net/http decides
)

// maxHeaderName is the longest name that lookupHeader knows.
const maxHeaderName = 40

// lookupHeader returns the id of a name in any letter case.
func lookupHeader(name []byte) headerID {
	if len(name) > maxHeaderName {
		return hdrRefuse
	}
	var buf [maxHeaderName]byte
	lower := buf[:len(name)]
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	if id := keptHeader(lower); id != hdrRefuse {
		return id
	}
	if id := framingHeader(lower); id != hdrRefuse {
		return id
	}
	return harmlessHeader(lower)
}

func keptHeader(name []byte) headerID {
	switch string(name) {
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
	}
	return hdrRefuse
}

// framingHeader knows the headers that say how long a request is or what becomes of the
// connection. Of these match accepts only "Connection: keep-alive"; the tracker looks at
// the lengths.
func framingHeader(name []byte) headerID {
	switch string(name) {
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
	case "trailer", "te":
		return hdrTrailer
	}
	return hdrRefuse
}

// harmlessHeader knows the headers of browsers, crawlers and proxies that change no answer.
// A request with a header that no list has goes to net/http.
func harmlessHeader(name []byte) headerID {
	switch string(name) {
	case "dnt", "priority", "upgrade-insecure-requests", "x-requested-with",
		"accept-charset", "from", "via", "x-correlation-id",
		"x-forwarded-port", "x-forwarded-server", "traceparent", "tracestate", "baggage", "purpose",
		"x-purpose", "x-moz", "device-memory", "downlink", "ect", "rtt", "keep-alive",
		"service-worker-navigation-preload", "cdn-loop", "x-amzn-trace-id", "alt-used",
		"content-type", "dictionary-id":
		return hdrHarmless
	}
	if hasPrefix(name, "sec-fetch-") || hasPrefix(name, "sec-ch-") || hasPrefix(name, "cf-") ||
		string(name) == "sec-gpc" || string(name) == "sec-purpose" {
		return hdrHarmless
	}
	return hdrRefuse
}

func hasPrefix(name []byte, prefix string) bool {
	return len(name) > len(prefix) && string(name[:len(prefix)]) == prefix
}
