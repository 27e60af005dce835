package nginx

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"millrace/importer/draft"
)

// duration is one of nginx's times (30s, 1h30m, 60, 500ms, 1d) as ours.
func duration(text string) (string, bool) {
	total, ok := elapsed(text)
	if !ok {
		return "", false
	}
	return shortDuration(total), true
}

func elapsed(text string) (time.Duration, bool) {
	units := map[string]time.Duration{
		"ms": time.Millisecond, "": time.Second, "s": time.Second, "m": time.Minute, "h": time.Hour,
		"d": 24 * time.Hour, "w": 7 * 24 * time.Hour, "M": 30 * 24 * time.Hour, "y": 365 * 24 * time.Hour,
	}
	parts := regexp.MustCompile(`^(?:\d+(?:ms|[smhdwMy])?\s*)+$`)
	if !parts.MatchString(text) {
		return 0, false
	}
	total := time.Duration(0)
	for _, m := range regexp.MustCompile(`(\d+)(ms|[smhdwMy])?`).FindAllStringSubmatch(text, -1) {
		n, err := strconv.ParseInt(m[1], 10, 32)
		if err != nil || total > 100*365*24*time.Hour {
			return 0, false
		}
		total += time.Duration(n) * units[m[2]]
	}
	return total, true
}

// shortDuration is a time without zeros behind: 1h, not 1h0m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// size is one of nginx's sizes (10m, 64k, 1g, 512) as ours.
func size(text string) (string, bool) {
	m := regexp.MustCompile(`^(\d{1,9})([kKmMgG]?)$`).FindStringSubmatch(text)
	if m == nil {
		return "", false
	}
	return m[1] + map[string]string{"": "B", "k": "KiB", "m": "MiB", "g": "GiB"}[strings.ToLower(m[2])], true
}

// variable is a variable of nginx in a text: $name or ${name}.
func variable() *regexp.Regexp { return regexp.MustCompile(`\$(?:\{(\w+)\}|(\w+))`) }

// requestVariables are the variables of texts that Millrace has, for paths and
// for redirects.
func requestVariables() map[string]string {
	return map[string]string{
		"host": "{host}", "http_host": "{host}", "request_uri": "{uri}", "uri": "{path}", "document_uri": "{path}",
		"args": "{query}", "query_string": "{query}", "scheme": "{scheme}", "remote_addr": "{address}",
	}
}

// withFields are requestVariables with those for parameters, fields and cookies that
// a text names.
func withFields(text string) map[string]string {
	known := requestVariables()
	for _, m := range regexp.MustCompile(`\$\{?((arg|http|cookie)_(\w+))`).FindAllStringSubmatch(text, -1) {
		switch name := m[3]; {
		case known[m[1]] != "":
		case m[2] == "arg":
			known[m[1]] = "{query." + name + "}"
		case m[2] == "cookie":
			known[m[1]] = "{cookie." + name + "}"
		default:
			known[m[1]] = "{header." + headerName(name) + "}"
		}
	}
	return known
}

// headerVariables are those of header fields, of answers or of requests for upstreams.
func headerVariables() map[string]string {
	return map[string]string{
		"host": "{host}", "http_host": "{host}", "scheme": "{scheme}", "remote_addr": "{client_ip}", "realip_remote_addr": "{client_ip}",
		"request_method": "{method}", "uri": "{path}", "document_uri": "{path}", "args": "{query}", "query_string": "{query}", "request_id": "{request_id}", "request_uri": "{uri}",
	}
}

// template translates a text with variables. known are those that have a name here,
// values those that a set has given a text.
func template(text string, known, values map[string]string) (string, error) {
	var bad []string
	result := variable().ReplaceAllStringFunc(text, func(v string) string {
		name := strings.Trim(v, "${}")
		if to, ok := known[name]; ok {
			return to
		}
		if to, ok := values[name]; ok {
			return to
		}
		if _, err := strconv.Atoi(name); err == nil {
			return "{" + name + "}"
		}
		bad = append(bad, "$"+name)
		return ""
	})
	if len(bad) > 0 {
		return "", fmt.Errorf("%s cannot be used here", strings.Join(draft.Unique(bad), ", "))
	}
	return result, nil
}

// everything reports whether an expression matches every path, and whether its
// first group is the path with or without the slash in front.
func everything(expr string) (all, noSlash bool) {
	switch expr {
	case "^", ".*", "^.*", "^.*$", "(.*)", "^(.*)$", "^(.*)", "^(.+)$", "^/.*$", "^/.*", "^/", "/", "^(/.*)$", "^(/.*)", ".", "^.+$", "^(.+)", "(.+)":
		return true, false
	case "^/(.*)$", "^/(.*)", "/(.*)", "/(.*)$", "^/(.+)$", "^/(.+)", "^/?(.*)$":
		return true, true
	}
	return false, false
}
