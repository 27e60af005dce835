package field

import "strings"

// Spelling is the name of a request's field as its standard writes it, for a name
// in the canonical form of net/http, which knows no abbreviations. Letter case
// means nothing (RFC 9110, 5.1), but some servers of WebSockets and of SOAP
// compare it.
func Spelling(canonical string) string {
	if len(canonical) == 0 || strings.IndexByte("CDHMST", canonical[0]) < 0 {
		return canonical
	}
	switch canonical {
	case "Content-Md5":
		return "Content-MD5" // RFC 1864
	case "Dnt":
		return "DNT"
	case "Http2-Settings":
		return "HTTP2-Settings" // RFC 7540, 3.2.1
	case "Mime-Version":
		return "MIME-Version" // RFC 9112, appendix B.1
	case "Soapaction":
		return "SOAPAction"
	case "Te":
		return "TE" // RFC 9110, 10.1.4
	case "Sec-Gpc":
		return "Sec-GPC"
	case "Sec-Websocket-Accept":
		return "Sec-WebSocket-Accept" // RFC 6455, 11.3
	case "Sec-Websocket-Extensions":
		return "Sec-WebSocket-Extensions"
	case "Sec-Websocket-Key":
		return "Sec-WebSocket-Key"
	case "Sec-Websocket-Protocol":
		return "Sec-WebSocket-Protocol"
	case "Sec-Websocket-Version":
		return "Sec-WebSocket-Version"
	}
	return canonical
}
