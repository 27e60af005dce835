package accesslog

import "strings"

// secrets are the parameters of a query whose values are not logged: tokens of
// WebSockets, which browsers cannot send in a header (RFC 6750, 2.3 and 5.3).
var secrets = [...]string{"token", "access_token"}

// WithoutSecrets is a request's target as it is logged: the values of the
// parameters token and access_token are left out.
func WithoutSecrets(target string) string {
	path, query, ok := strings.Cut(target, "?")
	if !ok || !strings.Contains(query, "token=") {
		return target
	}
	parameters := strings.Split(query, "&")
	for i, p := range parameters {
		name, value, _ := strings.Cut(p, "=")
		for _, secret := range secrets {
			if name == secret && value != "" {
				parameters[i] = name + "=..."
			}
		}
	}
	return path + "?" + strings.Join(parameters, "&")
}
