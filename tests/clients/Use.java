import org.dibs.ApiClient;
import org.dibs.ApiException;
import org.dibs.api.ClaimsApi;
import org.dibs.api.CouponsApi;
import org.dibs.api.PoliciesApi;
import org.dibs.model.*;

/** What a shop does with the client that openapi-generator makes for Java. */
public class Use {
    public static void main(String[] words) throws Exception {
        ApiClient client = new ApiClient().setBasePath(words[0]);
        PoliciesApi policies = new PoliciesApi(client);
        ClaimsApi claims = new ClaimsApi(client);
        CouponsApi coupons = new CouponsApi(client);
        Policy policy = policies.createPolicy(new PolicyInput().name("x").total(2)
            .discount(new Discount().type(Discount.TypeEnum.PERCENT).value(20L)), null);
        System.out.println(policy.getState() + " " + policies.listPolicies(100, null, null).getItems().size());
        Claim won = claims.claim(policy.getId(), new ClaimInput().user("u1"), null, null);
        System.out.println(won.getResult() + " " + claims.getClaim(policy.getId(), "u1", 0, null).getState());
        System.out.println(coupons.redeemCoupon(won.getCode(), null, new Redemption().orderId("o1")).getState());
        won = claims.claim(policy.getId(), new ClaimInput().user("u2"), null, null);
        System.out.println(coupons.cancelCoupon(won.getCode(), null).getState());
        try {
            claims.getClaim(policy.getId(), "nobody", 0, null);
        } catch (ApiException refused) {
            System.out.println(Problem.fromJson(refused.getResponseBody()).getCode());
        }
    }
}
