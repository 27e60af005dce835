package caddy

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"millrace/importer/draft"
)

// where is the place of a text, which decides what placeholders it may have.
type where int

const (
	inRule   where = iota // redirects and rewrites
	inHeader              // fields of answers
	inProxy               // fields for an upstream
	inText                // no variables
)

// variables are Caddy's placeholders in our words.
func variables(in where) map[string]string {
	v := map[string]string{
		"path": "{path}", "http.request.uri.path": "{path}", "query": "{query}", "http.request.uri.query": "{query}",
		"host": "{host}", "http.request.host": "{host}", "hostport": "{host}", "http.request.hostport": "{host}",
		"scheme": "{scheme}", "http.request.scheme": "{scheme}",
	}
	switch in {
	case inText:
		return nil
	case inRule:
		v["remote_host"], v["http.request.remote.host"], v["client_ip"] = "{address}", "{address}", "{address}"
		v["uri"], v["http.request.uri"], v["http.request.orig_uri"], v["%uri"] = "{uri}", "{uri}", "{uri}", "{uri}"
		v["http.request.orig_uri.path"] = "{path}"
	default:
		v["remote_host"], v["http.request.remote.host"], v["client_ip"], v["remote"] = "{client_ip}", "{client_ip}", "{client_ip}", "{client_ip}"
		v["http.vars.client_ip"], v["method"], v["http.request.method"] = "{client_ip}", "{method}", "{method}"
		v["uuid"], v["http.request.uuid"] = "{request_id}", "{request_id}"
		if in == inHeader {
			v["uri"], v["http.request.uri"] = "{uri}", "{uri}"
		}
	}
	return v
}

// template translates a text with Caddy's placeholders into one with ours. expr is the
// expression whose groups it may have.
func template(s string, in where, expr string) (string, error) {
	known := variables(in)
	var b strings.Builder
	for s != "" {
		if s[0] != '{' && s[0] != '}' {
			b.WriteByte(s[0])
			s = s[1:]
			continue
		}
		name, rest, ok := strings.Cut(strings.TrimPrefix(s, "{"), "}")
		if s[0] == '}' || !ok || !regexp.MustCompile(`^%?[A-Za-z][\w.%-]*$`).MatchString(name) {
			switch in {
			case inText:
				b.WriteByte(s[0])
			case inRule:
				return "", fmt.Errorf("%q has braces, which stand for variables here", s)
			default:
				b.WriteString(s[:1] + s[:1])
			}
			s = s[1:]
			continue
		}
		s = rest
		to, err := placeholder(name, in, expr, known)
		if err != nil {
			return "", err
		}
		b.WriteString(to)
	}
	return b.String(), nil
}

func placeholder(name string, in where, expr string, known map[string]string) (string, error) {
	if to := known[name]; to != "" {
		return to, nil
	}
	if env, is := strings.CutPrefix(name, "env."); is {
		return draft.Environment(env, ""), nil
	}
	if m := regexp.MustCompile(`^(?:re|http\.regexp)\.(?:\w+\.)?(\d+)$`).FindStringSubmatch(name); m != nil && in == inRule {
		re, err := regexp.Compile(expr)
		n, bad := strconv.Atoi(m[1])
		if err != nil || bad != nil || n > re.NumSubexp() || n == 0 {
			return "", fmt.Errorf("{%s} is no group of the expression", name)
		}
		return "{" + m[1] + "}", nil
	}
	if in == inRule {
		for _, kind := range []struct{ theirs, ours string }{
			{"http.request.header.", "header."}, {"header.", "header."}, {"http.request.uri.query.", "query."}, {"query.", "query."}, {"http.request.cookie.", "cookie."}, {"cookie.", "cookie."},
		} {
			if rest, is := strings.CutPrefix(name, kind.theirs); is {
				return "{" + kind.ours + rest + "}", nil
			}
		}
	}
	return "", fmt.Errorf("there is no {%s} here", name)
}

// duration is a time of Caddy's (10s, 1d) as one of ours.
func duration(s string) (string, bool) {
	m := regexp.MustCompile(`^(\d+)d$`).FindStringSubmatch(s)
	if m != nil {
		days, err := strconv.Atoi(m[1])
		return fmt.Sprint(days*24) + "h", err == nil && days > 0 && days < 10000
	}
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return s, true
	}
	return "", false
}
