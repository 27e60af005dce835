package admit

import (
	"net/http"
	"strings"
)

// maybeBrowser reports whether a browser may have sent a request, or a program that
// follows what others write (a crawler, a proxy for images, a preview of a link). Then
// somebody else has chosen the address: the author of a page or of a comment has
// others ask for anything, by a link, an image, a style, a form, a script or a
// redirect. Over HTTP without TLS browsers send no Sec-Fetch fields (Fetch Metadata,
// 2), and a page can have them leave out Referer and Cookie. They never leave out
// Accept-Language.
//
// It is easy to look like a browser. Who does is held by limits alone.
func maybeBrowser(h http.Header) bool {
	for name := range h {
		switch name {
		case "Accept-Language", "Referer", "Origin", "Cookie", "Upgrade-Insecure-Requests",
			"Purpose", "X-Purpose", "X-Moz", "Dnt", "Save-Data", "Service-Worker", "Ping-To", "Ping-From",
			"From": // robots that say whose they are (RFC 9110, 10.1.2)
			return true
		}
		if strings.HasPrefix(name, "Sec-") { // no script can set these (Fetch, 2.2.2)
			return true
		}
	}
	// Programs take anything, unless they are made to look at something.
	accept := strings.Join(h["Accept"], ",")
	return accept != "" && accept != "*/*"
}
