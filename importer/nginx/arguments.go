package nginx

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"millrace/importer/draft"
)

// Check finds a directive that has swallowed the next line since its ";" is missing:
// nginx would not start with it, and the importer would miss that next line, perhaps a
// "deny all".
func Check(list []*draft.Directive) error {
	for _, d := range list {
		if wholeBlocks()[d.Name] {
			continue
		}
		if err := checkArguments(d); err != nil {
			return err
		}
		if err := Check(d.Block); err != nil {
			return err
		}
	}
	return nil
}

func checkArguments(d *draft.Directive) error {
	bounds, known := arguments()[d.Name]
	if n := len(d.Args); known && !d.Opens && (n < bounds.least || n > bounds.most) {
		what := fmt.Sprintf("%s has %d arguments", d.Name, n)
		if n > bounds.most {
			what += `: is there a ";" missing?`
		}
		return fmt.Errorf("%s: %s", d.At(), what)
	}
	if d.Name != "listen" || d.Opens {
		return nil
	}
	for i, text := range d.Words() {
		name, _, _ := strings.Cut(text, "=")
		if i > 0 && !slices.Contains(listenOptions(), name) {
			return fmt.Errorf(`%s: listen has no parameter %q: is there a ";" missing?`, d.At(), text)
		}
	}
	return nil
}

func listenOptions() []string {
	return strings.Fields("default_server default ssl http2 quic spdy proxy_protocol setfib fastopen backlog rcvbuf sndbuf accept_filter deferred bind ipv6only reuseport so_keepalive multipath")
}

// bounds are how many arguments a directive has.
type bounds struct{ least, most int }

// arguments are those of directives that are used often.
func arguments() map[string]bounds {
	all := map[string]bounds{
		"return": {1, 2}, "rewrite": {2, 3}, "expires": {1, 2}, "add_header": {2, 3}, "break": {0, 0}, "internal": {0, 0},
		"proxy_set_header": {2, 2}, "fastcgi_param": {2, 3}, "set": {2, 2}, "auth_request_set": {2, 2},
	}
	for name := range strings.FieldsSeq(`root alias allow deny satisfy auth_basic auth_basic_user_file auth_request include proxy_pass fastcgi_pass uwsgi_pass grpc_pass
		client_max_body_size ssl_certificate ssl_certificate_key ssl_client_certificate ssl_verify_client fastcgi_index autoindex default_type gzip gzip_static sendfile
		server_tokens proxy_http_version proxy_read_timeout proxy_connect_timeout proxy_send_timeout proxy_buffering fastcgi_read_timeout limit_req_status charset`) {
		all[name] = bounds{1, 1}
	}
	return all
}

// meant is a directive that a name may be meant for, "" if there is none near.
func meant(name string) string {
	names := strings.Fields("server_name listen location index try_files error_page upstream server access_log error_log limit_req limit_conn proxy_cache proxy_cache_valid")
	names = slices.AppendSeq(names, maps.Keys(arguments()))
	for _, r := range slices.Concat(defaults(), missing()) {
		names = append(names, strings.Fields(r.Names)...)
	}
	slices.Sort(names)
	for _, n := range names {
		if len(name) > 3 && n != name && oneOff(name, n) {
			return n
		}
	}
	return ""
}

// oneOff reports whether one letter is missing, too much, another, or swapped with
// its neighbour.
func oneOff(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	switch len(b) - len(a) {
	case 0:
		return i == len(a) || a[i+1:] == b[i+1:] || i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
	case 1:
		return a[i:] == b[i+1:]
	}
	return false
}
