// What a shop does with the client that openapi-generator makes for Go.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/example/dibs"
)

func must[T any](answer *T, _ any, err error) *T {
	if err != nil {
		panic(err)
	}
	return answer
}

func main() {
	settings := dibs.NewConfiguration()
	settings.Servers[0].URL = os.Args[1]
	client, now := dibs.NewAPIClient(settings), context.Background()
	policy := must(client.PoliciesAPI.CreatePolicy(now).PolicyInput(
		*dibs.NewPolicyInput("x", *dibs.NewDiscount("percent", 20), 2)).Execute())
	fmt.Println(policy.State, len(must(client.PoliciesAPI.ListPolicies(now).Execute()).Items))
	claim := func(user string) *dibs.Claim {
		input := dibs.NewClaimInput()
		input.SetUser(user)
		return must(client.ClaimsAPI.Claim(now, policy.Id).ClaimInput(*input).Execute())
	}
	won := claim("u1")
	fmt.Println(won.Result, must(client.ClaimsAPI.GetClaim(now, policy.Id, "u1").Execute()).State)
	redemption := dibs.NewRedemption()
	redemption.SetOrderId("o1")
	fmt.Println(must(client.CouponsAPI.RedeemCoupon(now, *won.Code).Redemption(*redemption).Execute()).State)
	fmt.Println(must(client.CouponsAPI.CancelCoupon(now, *claim("u2").Code).Execute()).State)
	_, _, err := client.ClaimsAPI.GetClaim(now, policy.Id, "nobody").Execute()
	var refused *dibs.GenericOpenAPIError
	if errors.As(err, &refused) {
		fmt.Println(refused.Model().(dibs.Problem).Code)
	}
}
