package caddy

import (
	"cmp"
	"slices"
	"strings"

	"millrace/importer/draft"
)

// order is Caddy's own of directives: what it sorts a block by.
func order() []string {
	return strings.Fields(`tracing map vars fs root log_append skip_log log_skip log_name header copy_response_headers request_body redir method
		rewrite uri try_files basicauth basic_auth forward_auth request_header encode push intercept templates invoke handle handle_path
		route abort error copy_response respond metrics reverse_proxy php_fastcgi file_server acme_server`)
}

// withMatcher are the directives whose first argument may be a matcher.
func withMatcher(name string) bool {
	switch name {
	case "try_files", "handle_errors", "log", "tls", "bind", "import":
		return false
	}
	return true
}

// sorted is a block in the order in which Caddy goes through it.
func sorted(list []*draft.Directive) []*draft.Directive {
	rank := map[string]int{}
	for i, name := range order() {
		rank[name] = i + 1
	}
	rank["handle_path"] = rank["handle"] // of their paths, the longest comes first
	rank["basicauth"], rank["log_skip"] = rank["basic_auth"], rank["skip_log"]
	definitions := map[string]string{}
	for _, d := range list {
		if strings.HasPrefix(d.Name, "@") {
			definitions[d.Name] = onlyPath(d)
		}
	}
	path := func(d *draft.Directive) string {
		a := d.Arg(0)
		switch {
		case !withMatcher(d.Name), len(d.Args) == 1 && !d.Opens && (d.Name == "redir" || d.Name == "rewrite" || d.Name == "root"):
			return ""
		case strings.HasPrefix(a, "@"):
			return definitions[a]
		case strings.HasPrefix(a, "/"):
			return a
		}
		return ""
	}
	out := slices.Clone(list)
	slices.SortStableFunc(out, func(a, b *draft.Directive) int {
		if ra, rb := rank[a.Name], rank[b.Name]; ra != rb {
			return ra - rb
		}
		hasA, hasB := matched(a), matched(b)
		pa, pb := path(a), path(b)
		bareA, bareB := strings.TrimSuffix(pa, "*"), strings.TrimSuffix(pb, "*")
		switch {
		case pa != "" && pb != "" && pa != pb: // the longest, then by their letters, /*.jpg before /x.jpg
			return cmp.Or(len(bareB)-len(bareA), strings.Compare(bareA, bareB), len(pa)-len(pb))
		case hasA != hasB && hasA:
			return -1
		case hasA != hasB:
			return 1
		}
		return 0
	})
	return out
}

// matched reports whether a line is for some requests only.
func matched(d *draft.Directive) bool {
	a := d.Arg(0)
	return withMatcher(d.Name) && (strings.HasPrefix(a, "@") || strings.HasPrefix(a, "/") && (len(d.Args) > 1 || d.Opens || d.Name != "redir" && d.Name != "rewrite" && d.Name != "root"))
}

// onlyPath is the one path of a matcher that is nothing else.
func onlyPath(d *draft.Directive) string {
	if len(d.Args) == 2 && d.Args[0] == "path" {
		return d.Args[1]
	}
	if len(d.Args) == 0 && len(d.Block) == 1 && d.Block[0].Name == "path" && len(d.Block[0].Args) == 1 {
		return d.Block[0].Args[0]
	}
	return ""
}
