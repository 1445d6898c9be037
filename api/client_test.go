package api

import (
	"encoding/base64"
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/pushlease/pushlease/api/client"
)

// The Go client that is made of the document does what users do, signing keys among it.
func TestTheGoClientRegistersAndRotates(t *testing.T) {
	h := newHarness(t, withKeys)
	server := httptest.NewServer(h.api)
	defer server.Close()
	c, err := client.NewAPI(server.URL, "admin")
	if err != nil {
		t.Fatal(err)
	}
	yes, name := true, "billing"
	made, err := c.CreateWebhookWithResponse(t.Context(), nil, client.WebhookCreate{
		Name: &name, Queue: "orders", Url: "https://example.com/hook", Signatures: &client.SignaturesInput{V1a: &yes},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Err(made.HTTPResponse, made.Body); err != nil || made.JSON201 == nil || made.JSON201.SigningKeys == nil || len(*made.JSON201.SigningKeys) != 1 {
		t.Fatalf("%v: %s", err, made.Body)
	}
	id := made.JSON201.Id
	rotated, err := c.RotateSigningKeyWithResponse(t.Context(), id, nil, client.RotateSigningKeyJSONRequestBody{})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Err(rotated.HTTPResponse, rotated.Body); err != nil {
		t.Fatal(err)
	}
	token := base64.StdEncoding.EncodeToString([]byte("secret of a client"))
	var auth client.AuthInput
	if err := json.Unmarshal([]byte(`{"oauth2":{"token_url":"https://issuer.example/token","client_id":"a","client_secret":"`+token+`"}}`), &auth); err != nil {
		t.Fatal(err)
	}
	changed, err := c.PatchWebhookWithResponse(t.Context(), id, nil, client.WebhookPatch{Auth: &auth})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Err(changed.HTTPResponse, changed.Body); err != nil || changed.JSON200 == nil || changed.JSON200.Auth == nil {
		t.Fatalf("%v: %s", err, changed.Body)
	}
	list, err := c.ListWebhooksWithResponse(t.Context(), &client.ListWebhooksParams{Contains: &name})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Err(list.HTTPResponse, list.Body); err != nil || len(list.JSON200.Data) != 1 || list.JSON200.Data[0].Id != id {
		t.Errorf("%v: %s", err, list.Body)
	}
}
