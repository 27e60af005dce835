package admin

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestGrafana: every metric that the dashboard and the alert rules of packaging/grafana
// name exists, and so does every label that they select by or put together.
func TestGrafana(t *testing.T) {
	text, _ := scrape(t, Deps{Meters: counted()})
	published, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	text += string(published)
	for _, name := range []string{"millrace.json", "alerts.yml"} {
		file, err := os.ReadFile("../../../packaging/grafana/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if name == "millrace.json" && !json.Valid(file) {
			t.Error("the dashboard is no JSON")
		}
		metrics := regexp.MustCompile(`\b(?:millrace|process)_[a-z0-9_]+`).FindAllString(string(file), -1)
		if len(metrics) < 7 {
			t.Errorf("%s names %d metrics", name, len(metrics))
		}
		for _, m := range metrics {
			if base := strings.TrimSuffix(m, "_bucket"); !strings.Contains(text, "# TYPE "+base+" ") && !strings.Contains(text, "\n"+m) && m != "millrace_certificate_expires_timestamp_seconds" {
				t.Errorf("%s: there is no metric %s", name, m)
			}
		}
		for _, by := range regexp.MustCompile(`by \(([a-z, ]+)\)`).FindAllStringSubmatch(string(file), -1) {
			for label := range strings.SplitSeq(by[1], ", ") {
				if label != "instance" && !regexp.MustCompile(`[{,]`+label+`=`).MatchString(text) {
					t.Errorf("%s: no metric has a label %s", name, label)
				}
			}
		}
	}
}
