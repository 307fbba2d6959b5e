import dibs.apis.ClaimsApi
import dibs.apis.CouponsApi
import dibs.apis.PoliciesApi
import dibs.infrastructure.ClientError
import dibs.infrastructure.ClientException
import dibs.infrastructure.Serializer
import dibs.models.*

/** What a shop does with the client that openapi-generator makes for Kotlin. */
fun main(words: Array<String>) {
    val policies = PoliciesApi(words[0])
    val claims = ClaimsApi(words[0])
    val coupons = CouponsApi(words[0])
    val policy = policies.createPolicy(
        PolicyInput(name = "x", discount = Discount(Discount.Type.percent, 20), total = 2))
    println("${policy.state} ${policies.listPolicies().items.size}")
    var won = claims.claim(policy.id, ClaimInput(user = "u1"))
    println("${won.result} ${claims.getClaim(policy.id, "u1").state}")
    println(coupons.redeemCoupon(won.code!!, redemption = Redemption(orderId = "o1")).state)
    won = claims.claim(policy.id, ClaimInput(user = "u2"))
    println(coupons.cancelCoupon(won.code!!).state)
    try {
        claims.getClaim(policy.id, "nobody")
    } catch (refused: ClientException) {
        val body = (refused.response as ClientError<*>).body as String
        println(Serializer.moshi.adapter(Problem::class.java).fromJson(body)!!.code)
    }
}
