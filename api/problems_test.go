package api

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pushlease/pushlease/api/internal/web"
)

// Clients go by the types of problems: each is in the document and on the page, with its status.
func TestTheTypesOfProblemsAreThoseOfTheDocumentAndThePage(t *testing.T) {
	page, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	var want, documented, onPage []string
	for _, kind := range web.Kinds() {
		want = append(want, fmt.Sprintf("%s %d", kind.Name, kind.Status))
		if kind.Title == "" {
			t.Errorf("%s has no title", kind.Name)
		}
	}
	for _, name := range document(t).Components.Schemas["ProblemType"].Value.Enum {
		i := slices.IndexFunc(web.Kinds(), func(k web.Kind) bool { return name == "urn:pushlease:problem:"+k.Name })
		if i < 0 {
			t.Errorf("%s of the document is no type", name)
			continue
		}
		documented = append(documented, want[i])
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| (\\d{3}) \\| .+? \\| (.*?) ?\\|$").FindAllStringSubmatch(string(page), -1) {
		onPage = append(onPage, row[1]+" "+row[2])
		i := slices.IndexFunc(web.Kinds(), func(k web.Kind) bool { return row[1] == k.Name })
		if i >= 0 && web.Kinds()[i].Wait > 0 && !regexp.MustCompile(`^`+strconv.Itoa(int(web.Kinds()[i].Wait.Seconds()))+` s\b`).MatchString(row[3]) {
			t.Errorf("%s: the page says that it can be sent again after %q, the code %s", row[1], row[3], web.Kinds()[i].Wait)
		}
	}
	if diff := cmp.Diff(want, documented); diff != "" {
		t.Errorf("-code +document:\n%s", diff)
	}
	if diff := cmp.Diff(want, onPage); diff != "" {
		t.Errorf("-code +page:\n%s", diff)
	}
}

// A 409 that waiting ends says how long to wait.
func TestAConflictThatEndsByItselfSaysWhen(t *testing.T) {
	h := withJobs(t)
	d := h.putDeadLetter(dead("m", "", "payload"))
	h.do(http.StatusAccepted, "POST", "/api/v1/dead-letters/"+d.ID+"/replay", "")
	again := h.do(http.StatusConflict, "POST", "/api/v1/dead-letters/"+d.ID+"/replay", "")
	if wait, err := strconv.Atoi(again.header.Get("Retry-After")); err != nil || time.Duration(wait)*time.Second > 10*time.Minute || wait < 500 {
		t.Errorf("Retry-After of a replay that is under way = %q", again.header.Get("Retry-After"))
	}
}
