package lane

import (
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
	"millrace/internal/wire/send"
)

// matchable reports whether match accepts requests for this target.
func matchable(target string) bool {
	path, query, _ := strings.Cut(target, "?")
	if pathEnd(bytesOf(path), 0) < len(path) {
		return false
	}
	for i := range len(query) {
		if message.Class[query[i]]&message.TargetByte == 0 {
			return false
		}
	}
	return len(target) < maxHead
}

// offerable reports whether the lane would send an answer byte for byte as net/http does.
func offerable(a *send.Answer, rule Rule) bool {
	for name, values := range a.Header {
		if !offerableField(name, values, rule) {
			return false
		}
	}
	_, dated := a.Header["Date"]
	return dated == (rule.Lines != nil) && framed(a) && (a.File == nil || a.File.HasDescriptor())
}

// offerableField refuses fields for one connection or one client, fields that net/http would
// repair, and a Vary with a name that is not in the rule's VaryOn.
func offerableField(name string, values []string, rule Rule) bool {
	switch name {
	case "Set-Cookie", "Connection", "Trailer", "Transfer-Encoding":
		return false
	case "Content-Length", "Date":
		if len(values) != 1 {
			return false
		}
	case "Vary":
		if !allNamed(values, rule.VaryOn) {
			return false
		}
	}
	if !field.Token(name) || textproto.CanonicalMIMEHeaderKey(name) != name {
		return false
	}
	for _, v := range values {
		if !fieldValue(v) {
			return false
		}
	}
	return true
}

// fieldValue reports whether v is a valid field value (RFC 9110, 5.5): a line break in it
// would begin another header, or another answer.
func fieldValue(v string) bool {
	return field.Value(v) && textproto.TrimString(v) == v
}

// allNamed reports whether every header that Vary names is in varyOn.
func allNamed(vary, varyOn []string) bool {
	for name := range field.Members(vary) {
		if !slices.ContainsFunc(varyOn, func(c string) bool { return strings.EqualFold(c, name) }) {
			return false
		}
	}
	return true
}

// framed reports whether the answer's length is right: with a wrong one the client would
// take a part of it for the next answer.
func framed(a *send.Answer) bool {
	length, sized := a.Header["Content-Length"]
	switch code := a.Code(); {
	case code < 200 || code > 599:
		return false
	case code == http.StatusNoContent: // RFC 9110, 8.6
		return !sized && a.Size == 0 && a.File == nil && len(a.Body) == 0
	case code == http.StatusPartialContent, code == http.StatusNotModified,
		code == http.StatusPreconditionFailed, code == http.StatusRequestedRangeNotSatisfiable:
		return false // they answer a condition or a range, which other requests do not have
	}
	if !sized || length[0] != strconv.FormatInt(a.Size, 10) {
		return false
	}
	return a.File != nil || int64(len(a.Body)) == a.Size
}
