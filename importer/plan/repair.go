package plan

import (
	"fmt"
	"strings"

	"millrace/importer/draft"
)

// Repair takes a line of a config that "millrace check" refuses out of it, and says what
// became of it in the report; false where that is left to a person. What it was for stays
// closed: a route answers 501; a rule does where its conditions are good, and else its site
// answers 403 until somebody has looked.
func Repair(config *draft.Node, r *draft.Report, line int, fault string) bool {
	way := config.EntriesAt(line)
	if len(way) < 4 || way[0].Key() != "sites" {
		return remove(r, way, fault)
	}
	site := way[1].Value()
	switch part, of := way[2].Key(), way[3]; {
	case part == "rules" && (of.Value().Get("deny") == nil && of.Value().Get("respond").Get("status").Plain() != "501"):
		conditions := draft.Map()
		of.Value().CopyTo(conditions, "redirect", "rewrite", "respond", "route")
		note(r, of, fault, "It answers 501 until you have written it")
		of.Set(written(NotImplemented()).On(conditions).Flow())
	case part == "rules":
		why := note(r, of, fault, "The site answers 403 until its first rule is removed")
		of.Remove()
		close403(site, why)
	case part == "routes" && len(way) > 4 && way[4].Key() == "headers":
		note(r, of, fault, "The fields are left out")
		way[4].Remove()
	case part == "routes" && of.Value().Text() != written(NotImplemented()).Text():
		note(r, of, fault, "It answers 501 until you have written it")
		of.Set(written(NotImplemented()).Flow())
	case part == "routes":
		why := note(r, of, fault, "The site answers 403 until its first rule is removed")
		of.Remove()
		close403(site, why)
		if way[2].Value().Len() == 0 {
			way[2].Value().Set("/", Rule{Do: Deny(404)}.Node(), "nothing else is left to answer")
		}
	case part == "auth" || part == "access" || part == "rate_limit":
		why := note(r, way[2], fault, "The site answers 403 until its first rule is removed")
		way[2].Remove()
		close403(site, why)
	default:
		return remove(r, way[2:], fault)
	}
	return true
}

// remove takes the innermost entry out that a line is about, such as a time in limits.
// Listeners and certificates are left to a person.
func remove(r *draft.Report, way []draft.Entry, fault string) bool {
	if len(way) < 2 || way[0].Key() == "tls" || way[0].Key() == "listen" || way[0].Key() == "sites" {
		return false
	}
	note(r, way[1], fault, "It is left out")
	way[1].Remove()
	return true
}

// note adds what check says of an entry to the report, and returns the entry's origin.
func note(r *draft.Report, of draft.Entry, fault, so string) string {
	at, text, _ := strings.Cut(of.Comment(), ": ")
	if at == "" || strings.Contains(at, " ") {
		at, text = "written", strings.TrimSpace(of.Value().Text())
	}
	if of.Key() != "" {
		text = of.Key() + " " + text
	}
	r.Add(draft.Note{At: at, Line: text, Outcome: draft.Untranslated, Why: fmt.Sprintf("millrace check refuses what was made of it: %s. %s", fault, so)})
	return at + ": " + text
}

// close403 puts a rule before all others of a site that lets nobody in.
func close403(site *draft.Node, why string) {
	rules := Closed([]string{why})
	if old := site.Get("rules"); old != nil {
		old.Each(func(rule *draft.Node, comment []string) { rules.Add(rule, comment...) })
	}
	site.Remove("rules")
	routes := site.Get("routes")
	site.Remove("routes")
	site.Set("rules", rules)
	site.Set("routes", routes)
}
