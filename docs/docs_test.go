package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPackages: the deb and the rpm bring what the manual tells their users of, and name no
// file that is not there.
func TestPackages(t *testing.T) {
	list, err := os.ReadFile("../packaging/nfpm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	packed := map[string]string{}
	for _, entry := range regexp.MustCompile(`- \{src: "?([^",]+)"?, dst: ([^,}]+)`).FindAllStringSubmatch(string(list), -1) {
		packed[entry[2]] = entry[1]
		if strings.HasPrefix(entry[1], "${STAGE}/") { // packaging/build makes it
			continue
		}
		if info, err := os.Stat(filepath.Join("..", entry[1])); err != nil || !info.Mode().IsRegular() {
			t.Errorf("the packages have %s, which is no file here: %v", entry[1], err)
		}
	}
	const doc = "/usr/share/doc/millrace/"
	for file, from := range map[string]string{
		doc + "manual": "${STAGE}/manual", doc + "examples": "${STAGE}/examples",
		doc + "packaging/compose.yaml":          "packaging/compose.yaml",
		doc + "packaging/grafana/millrace.json": "packaging/grafana/millrace.json", doc + "packaging/grafana/alerts.yml": "packaging/grafana/alerts.yml",
		"/usr/share/millrace/millrace.schema.json": "docs/millrace.schema.json",
		"/usr/share/man/man1/millrace.1.gz":        "${STAGE}/millrace.1.gz", "/usr/share/man/man5/millrace.yaml.5.gz": "${STAGE}/millrace.yaml.5.gz",
	} {
		if packed[file] != from {
			t.Errorf("the packages have %s from %q, want %s", file, packed[file], from)
		}
	}
	grafana, err := os.ReadDir("../packaging/grafana")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range grafana {
		if packed[doc+"packaging/grafana/"+f.Name()] == "" {
			t.Errorf("packaging/grafana/%s is not in the packages", f.Name())
		}
	}
}
