package pages

import "net/http"

// Style is that of all pages that are built in; a page may have more behind it.
const Style = `:root{color-scheme:light dark;--text:#1b1f24;--back:#fff;--soft:#57606a;--mark:#0b57d0;--line:#d8dee4}
@media(prefers-color-scheme:dark){:root{--text:#e6e6e6;--back:#16181c;--soft:#a0a8b2;--mark:#8ab4f8;--line:#343a42}}
body{margin:0;background:var(--back);color:var(--text);font:1.0625rem/1.5 system-ui,sans-serif}
main{max-width:34rem;margin:12vh auto;padding:0 1.25rem;overflow-wrap:anywhere}
h1{font-size:1.5rem;line-height:1.2;margin:0 0 1rem}
a{color:var(--mark)}
.soft{color:var(--soft);font-size:.9375rem}
`

// ownPolicy is Policy(Style).
const ownPolicy = "default-src 'none'; style-src 'sha256-f9Zh+a83rQJZUpeGa6hSbzYaCswo/YmrmzU0UDSNY28='; base-uri 'none'; form-action 'none'"

// NoSite is the text for a host that no site has.
const NoSite = "No site is served under this host name. Check the address; if it is right, the owner of the site has to add the name to this server."

// words are what a page says about a status.
type words struct{ title, text string }

// messages has the words for each status. A text says what happened and, where there is something to do, what.
var messages = map[int]words{
	http.StatusBadRequest:                  {"Bad request", "The server does not understand this request. Check the address for mistakes."},
	http.StatusUnauthorized:                {"Please sign in", "This page is only for users who are signed in. Check your user name and password, or your token, and try again."},
	http.StatusForbidden:                   {"No access", "You may not see this page. If you think you should, ask the owner of the site."},
	http.StatusNotFound:                    {"Not found", "Nothing is here. Check the address for mistakes, or start at the front page of the site."},
	http.StatusMethodNotAllowed:            {"Method not allowed", "Requests with this method are not possible here."},
	http.StatusNotAcceptable:               {"Not acceptable", "This page does not exist in a form that your program accepts."},
	http.StatusRequestTimeout:              {"Too slow", "The request took too long to arrive. Try again, on a faster connection if you can."},
	http.StatusGone:                        {"Gone", "This page was removed for good. Start at the front page of the site."},
	http.StatusRequestEntityTooLarge:       {"Too large", "The request's body is larger than this server accepts. Send less at once."},
	http.StatusRequestURITooLong:           {"Address too long", "The address is longer than this server accepts. Use a shorter one."},
	http.StatusMisdirectedRequest:          {"Wrong connection", "This connection is not for this address. Open the page again."},
	http.StatusTooManyRequests:             {"Too many requests", "You have sent too many requests."},
	http.StatusUnavailableForLegalReasons:  {"Not available", "This page may not be shown, for legal reasons."},
	http.StatusRequestHeaderFieldsTooLarge: {"Header too large", "The header of this request is larger than this server accepts. Delete the cookies of this site, and try again."},
	http.StatusInternalServerError:         {"Something went wrong", "Something went wrong on the server."},
	http.StatusNotImplemented:              {"Not supported", "This server cannot do what the request asks for."},
	http.StatusBadGateway:                  {"No answer", "The server behind this site could not be reached, or gave no proper answer."},
	http.StatusServiceUnavailable:          {"Not available now", "This site is overloaded or down."},
	http.StatusGatewayTimeout:              {"No answer in time", "The server behind this site took too long to answer."},
	http.StatusHTTPVersionNotSupported:     {"Version not supported", "This server does not speak the version of HTTP that the request has."},
	http.StatusLoopDetected:                {"Loop detected", "This request loops between servers. Only the owner of the site can change that."},
}
