package field

import (
	"iter"
	"strings"
)

// Cookies are the values of a request's cookies of a name, in their order, as
// http.Request.CookiesNamed has them: without quotes, and without those that have a byte no
// value may have (RFC 6265, 4.1.1, and a space or a comma).
func (l *Lines) Cookies(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range *l {
			if line := &(*l)[i]; line.Name == "Cookie" && !cookiesIn(line.Value, name, yield) {
				return
			}
		}
	}
}

// Cookie is the first value of a request's cookies of a name; "": there is none.
func (l *Lines) Cookie(name string) string {
	for value := range l.Cookies(name) {
		return value
	}
	return ""
}

func cookiesIn(line, name string, yield func(string) bool) (goOn bool) {
	for line != "" {
		var one string
		one, line, _ = strings.Cut(line, ";")
		key, value, _ := strings.Cut(strings.Trim(one, " \t\r\n"), "=")
		if strings.Trim(key, " \t\r\n") != name {
			continue
		}
		if n := len(value); n > 1 && value[0] == '"' && value[n-1] == '"' {
			value = value[1 : n-1]
		}
		if cookieValue(value) && !yield(value) {
			return false
		}
	}
	return true
}

func cookieValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == ';' || c == '\\' {
			return false
		}
	}
	return true
}
